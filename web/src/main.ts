import { mount } from "svelte";
import App from "./App.svelte";
import "./app.css";
import { Live, Packed, type Pack, type Source } from "./lib/source";
import { app } from "./lib/state.svelte";

const pack = document.getElementById("glassformer-data");
const source: Source = pack ? new Packed(JSON.parse(pack.textContent ?? "") as Pack) : new Live();
app.source = source;
app.theme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";

mount(App, { target: document.getElementById("app")! });

void (async () => {
  try {
    const hash = location.hash;
    app.about = await source.about();
    await app.restore(hash);
  } catch (error) {
    app.trouble = (error as Error).message;
  }
})();
