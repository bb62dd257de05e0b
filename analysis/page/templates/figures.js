(() => {
  const WIDEST_REM = 60, NARROWEST_REM = 38, LEAST_FONT_PX = 9;
  const rem = parseFloat(getComputedStyle(document.documentElement).fontSize);

  // Without it, or with an old browser, the pictures stay.
  async function load() {
    const packed = document.getElementById("library").textContent;
    const bytes = Uint8Array.from(atob(packed), (letter) => letter.charCodeAt(0));
    const unpacked = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    const script = document.createElement("script");
    script.textContent = await new Response(unpacked).text();
    document.head.append(script);
  }

  // Text of one panel keeps its size and breaks; several panels are scaled, and scroll if narrow.
  function fitted(box, plot) {
    const share = Number(box.style.getPropertyValue("--share"));
    const { aspect, panels } = plot.layout.meta;
    const room = Math.min(box.clientWidth, WIDEST_REM * rem * share);
    const least = panels > 1 ? NARROWEST_REM * rem * share : 0;
    const width = Math.floor(Math.max(room, least));
    const scale = Math.min(1, width / (WIDEST_REM * rem * share));
    const size = panels > 1 ? Math.max(LEAST_FONT_PX, plot.layout.font.size * scale) : plot.layout.font.size;
    const height = Math.max(Math.round(width * aspect), panels > 1 ? 0 : 18 * rem);
    return { width, height, "font.size": size };
  }

  async function draw(figure) {
    const box = figure.querySelector(".scroll"), picture = box.querySelector("img");
    const plot = JSON.parse(figure.querySelector("script").textContent);
    const place = document.createElement("div");
    place.className = "plot";
    box.append(place);
    const first = fitted(box, plot);
    const layout = { ...plot.layout, ...first, font: { ...plot.layout.font, size: first["font.size"] } };
    delete layout["font.size"];
    // A finger moves the page and not the axes.
    layout.dragmode = matchMedia("(pointer: coarse)").matches ? false : "zoom";
    // Dragging looks closer, a double click goes back: no buttons that lie on titles.
    await Plotly.newPlot(place, plot.data, layout, { displayModeBar: false });
    figure.toggleAttribute("data-drawn", true);
    const told = figure.querySelector(".told");
    if (told) told.hidden = false;
    picture.setAttribute("aria-hidden", "true");
    place.setAttribute("role", "img");
    place.setAttribute("aria-label", picture.alt);
    box.parentElement.dispatchEvent(new Event("cue"));
    let width = first.width;
    new ResizeObserver(() => {
      const next = fitted(box, plot);
      if (next.width === width || !next.width) return;
      width = next.width;
      Plotly.relayout(place, next);
      box.parentElement.dispatchEvent(new Event("cue"));
    }).observe(box);
  }

  async function start() {
    const figures = [...document.querySelectorAll("figure:has(script)")];
    await load();
    if (typeof Plotly === "undefined") return;
    // Those that nobody scrolls to cost nothing.
    const seen = new IntersectionObserver((entries) => {
      for (const entry of entries.filter((each) => each.isIntersecting)) {
        seen.unobserve(entry.target);
        draw(entry.target);
      }
    }, { rootMargin: "600px" });
    for (const figure of figures) seen.observe(figure);
  }

  start();
})();
