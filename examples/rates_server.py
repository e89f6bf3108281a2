"""A small HTTP server whose exchange rates are different at every request, as real ones are.

python examples/rates_server.py --port 8765
curl http://127.0.0.1:8765/EUR
"""

from __future__ import annotations

import argparse
import json
import random
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

BASE_RATES = {"EUR": 1.08, "GBP": 1.27, "JPY": 0.0067, "USD": 1.0}


class Rates(BaseHTTPRequestHandler):
    """``GET /EUR`` answers ``{"currency": "EUR", "rate": 1.0832}``: the base rate, up to 5% more or less."""

    protocol_version = "HTTP/1.1"
    wbufsize = (
        -1
    )  # Headers and body leave in one packet: sent apart, each answer would wait 40 ms for an acknowledgement.

    def do_GET(self) -> None:
        currency = self.path.strip("/")
        if currency not in BASE_RATES:
            self._answer(404, {"error": f"no rate for {currency}"})
            return
        rate = BASE_RATES[currency] * random.uniform(0.95, 1.05)
        self._answer(200, {"currency": currency, "rate": round(rate, 6)})

    def _answer(self, status: int, body: dict[str, object]) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Logs nothing for a request."""


def main() -> None:
    parser = argparse.ArgumentParser(description="Serves exchange rates that change at every request.")
    parser.add_argument("--port", type=int, default=8765)
    server = ThreadingHTTPServer(("127.0.0.1", parser.parse_args().port), Rates)
    print(f"serving rates on http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
