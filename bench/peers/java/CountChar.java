package clonos.peers;

import org.apache.flink.table.functions.ScalarFunction;

/** How often a character is in a text: the function of query 14. */
public class CountChar extends ScalarFunction {
    public long eval(String text, String character) {
        if (text == null) {
            return 0;
        }
        char wanted = character.charAt(0);
        long found = 0;
        for (int i = 0; i < text.length(); i++) {
            if (text.charAt(i) == wanted) {
                found++;
            }
        }
        return found;
    }
}
