// Browsers refuse workers in pages that are opened as files. There, the script of a worker (the search) runs in a hidden
// frame instead, with the same messages.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const scope = frame.contentWindow;
      scope.document.open();
      scope.document.close();
      scope.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      const script = scope.document.createElement("script");
      script.src = url;
      this.started = new Promise((resolve) => (script.onload = resolve));
      scope.document.body.append(script);
      this.scope = scope;
    }

    async postMessage(data) {
      await this.started;
      this.scope.dispatchEvent(new MessageEvent("message", { data }));
    }
  };
}
