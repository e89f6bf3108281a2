package clonos.peers;

import java.io.BufferedReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import org.apache.flink.table.functions.FunctionContext;
import org.apache.flink.table.functions.TableFunction;

/** The side input of query 13, a file of lines "key,value" that is read once: the value of a key, if there is one. */
public class SideInput extends TableFunction<String> {
    private transient Map<Long, String> values;

    @Override
    public void open(FunctionContext context) throws Exception {
        values = new HashMap<>();
        Path file = Path.of(context.getJobParameter("side_input", null));
        try (BufferedReader lines = Files.newBufferedReader(file, StandardCharsets.UTF_8)) {
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                int comma = line.indexOf(',');
                values.put(Long.valueOf(line.substring(0, comma)), line.substring(comma + 1));
            }
        }
    }

    public void eval(Long key) {
        String value = values.get(key);
        if (value != null) {
            collect(value);
        }
    }
}
