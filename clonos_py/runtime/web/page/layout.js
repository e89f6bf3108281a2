// Places the operators of a job: each in the column behind the last of its inputs.
const WIDTH = 190, HEIGHT = 92, ACROSS = 60, DOWN = 22, MARGIN = 6;

export function layout(vertices, edges) {
  const depth = new Map(vertices.map((vertex) => [vertex.name, 0]));
  const forward = edges.filter((edge) => !edge.feedback);
  for (let round = 0; round < vertices.length; round++) {
    for (const { from, to } of forward) depth.set(to, Math.max(depth.get(to), depth.get(from) + 1));
  }
  const rows = new Map();
  const places = new Map();
  const boxes = vertices.map((vertex) => {
    const column = depth.get(vertex.name);
    const row = rows.get(column) ?? 0;
    rows.set(column, row + 1);
    const box = { vertex, column, x: MARGIN + column * (WIDTH + ACROSS), y: MARGIN + row * (HEIGHT + DOWN), w: WIDTH, h: HEIGHT };
    places.set(vertex.name, box);
    return box;
  });
  const paths = edges.map(({ from, to, feedback }) => {
    const a = places.get(from), b = places.get(to);
    const y1 = a.y + a.h / 2, y2 = b.y + b.h / 2;
    if (feedback) {
      const low = Math.max(a.y, b.y) + HEIGHT + DOWN / 2;
      return `M${a.x + a.w / 2},${a.y + a.h} C${a.x + a.w / 2},${low + 20} ${b.x + b.w / 2},${low + 20} ${b.x + b.w / 2},${b.y + b.h}`;
    }
    if (b.column > a.column + 1 && a.y === b.y) {  // below the boxes between
      const low = a.y + HEIGHT + DOWN - 4;
      return `M${a.x + a.w},${y1} C${a.x + a.w + ACROSS},${y1} ${a.x + a.w},${low} ${a.x + a.w + ACROSS},${low} L${b.x - ACROSS},${low} C${b.x},${low} ${b.x - ACROSS},${y2} ${b.x},${y2}`;
    }
    const middle = (a.x + a.w + b.x) / 2;
    return `M${a.x + a.w},${y1} C${middle},${y1} ${middle},${y2} ${b.x},${y2}`;
  });
  const width = MARGIN * 2 + Math.max(...boxes.map((box) => box.x + box.w), WIDTH);
  const height = MARGIN * 2 + DOWN + Math.max(...boxes.map((box) => box.y + box.h), HEIGHT);
  return { boxes, edges: paths, width, height };
}
