// Script of a page: replaces each picture that is followed by a specification with an interactive one when the reader
// scrolls near it.
import {View, expressionInterpreter, parse} from 'vega';

const tip = document.createElement('div');
tip.className = 'plot-tip';
tip.setAttribute('role', 'status');
tip.hidden = true;

// Names are untrusted, so they are only set as text.
function showTip(_, event, __, value) {
  tip.hidden = value == null || value === '';
  if (tip.hidden) return;
  tip.replaceChildren(...lines(value).map(line => Object.assign(document.createElement('div'), {textContent: line})));
  const {width, height} = tip.getBoundingClientRect();
  const left = Math.min(event.clientX + 12, document.documentElement.clientWidth - width - 8);
  const above = event.clientY + 16 + height > window.innerHeight;
  tip.style.left = `${Math.max(8, left)}px`;
  tip.style.top = `${above ? event.clientY - height - 12 : event.clientY + 16}px`;
}

function lines(value) {
  if (typeof value !== 'object') return [String(value)];
  return Object.entries(value).map(([name, text]) => (name.trim() === 'of' ? text : `${name}: ${text}`));
}

const loader = {load: refuse, sanitize: refuse, http: refuse, file: refuse};

function refuse() {
  return Promise.reject(new Error('a chart loads nothing'));
}

async function revive(spec) {
  const still = spec.previousElementSibling;
  const place = document.createElement('div');
  place.hidden = true;
  still.after(place);
  const most = still.viewBox.baseVal.width;
  const fitting = () => Math.min(most, place.parentElement.clientWidth);
  const runtime = parse(JSON.parse(spec.textContent), null, {ast: true});
  const view = new View(runtime, {expr: expressionInterpreter, loader, renderer: 'svg', tooltip: showTip});
  view.initialize(place).hover();
  await fitted(view, fitting());
  const drawn = place.querySelector('svg');
  drawn.setAttribute('role', 'img');
  drawn.setAttribute('aria-label', still.querySelector('title').textContent);
  // The picture as a whole has a name. Screen readers would announce each of its parts, which have roles but no names.
  for (const part of drawn.children) part.setAttribute('aria-hidden', 'true');
  drawn.prepend(still.querySelector('title').cloneNode(true), still.querySelector('desc').cloneNode(true));
  place.hidden = false;
  place.parentElement.removeAttribute('tabindex');
  still.remove();
  new ResizeObserver(() => view.width() !== fitting() && fitted(view, fitting())).observe(place.parentElement);
}

// The legend's number of columns depends on the width, and the space for the legend is known only after that.
async function fitted(view, width) {
  await view.width(width).runAsync();
  await view.resize().runAsync();
}

const near = new IntersectionObserver(
  seen => {
    for (const {target} of seen.filter(entry => entry.isIntersecting)) {
      near.unobserve(target);
      revive(target.nextElementSibling).catch(error => console.error(error));
    }
  },
  {rootMargin: '300px'},
);

document.body.append(tip);
for (const spec of document.querySelectorAll('svg + script.plot-spec')) near.observe(spec.previousElementSibling);
