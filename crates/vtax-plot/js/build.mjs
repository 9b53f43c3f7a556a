// Bundles the scripts for QuickJS and for pages, and collects the licences of their packages. Called by
// `scripts/vega.sh`.
import {createHash} from 'node:crypto';
import {readFileSync, readdirSync, writeFileSync} from 'node:fs';
import {build} from 'esbuild';

const settings = {
  bundle: true,
  minify: true,
  format: 'iife',
  target: 'es2022',
  charset: 'ascii',
  legalComments: 'none',
  metafile: true,
  write: false,
  alias: {vega: './vega.js', 'd3-geo': './nowhere.js'},
};

async function bundled(name) {
  const {metafile, outputFiles} = await build({...settings, entryPoints: [`${name}.js`], outdir: '.'});
  return {text: outputFiles[0].text, packages: packagesOf(metafile)};
}

function packagesOf(metafile) {
  const folders = Object.keys(metafile.inputs).map(path => path.match(/^(.*node_modules\/(?:@[^/]+\/)?[^/]+)\//)?.[1]);
  return [...new Set(folders.filter(Boolean))].map(described).sort((a, b) => (a.name < b.name ? -1 : 1));
}

function described(folder) {
  const {name, version, license} = JSON.parse(readFileSync(`${folder}/package.json`, 'utf8'));
  const file = readdirSync(folder).find(entry => /^licen[cs]e/i.test(entry));
  if (!file) throw new Error(`${name} has no licence text`);
  return {name, version, license, text: readFileSync(`${folder}/${file}`, 'utf8').trim()};
}

// Packages with the same licence text share one section.
function licences(packages) {
  const texts = Map.groupBy ? Map.groupBy(packages, own => own.text) : grouped(packages);
  const section = ([text, owners]) => {
    const names = owners.map(({name, version, license}) => `${name} ${version} (${license})`);
    return `${[...new Set(names)].join('\n')}\n\n${text}\n`;
  };
  return [...texts].map(section).join(`\n${'-'.repeat(78)}\n\n`);
}

function grouped(packages) {
  const texts = new Map();
  for (const own of packages) texts.set(own.text, [...(texts.get(own.text) ?? []), own]);
  return texts;
}

const draw = await bundled('draw');
writeFileSync('../bundle/draw.min.js', draw.text);

const page = await bundled('page');
const script = `/*!\n${licences(page.packages).replaceAll('*/', '* /').replaceAll('<', '(').replaceAll('>', ')')}*/\n${page.text}`;
writeFileSync('../bundle/page.min.js', script);
writeFileSync('../bundle/page.min.js.sha256', `sha256-${createHash('sha256').update(script).digest('base64')}\n`);

const font = described('node_modules/inter-ui');
const all = new Map([...draw.packages, ...page.packages, font].map(own => [`${own.name} ${own.version}`, own]));
writeFileSync('../LICENCES.txt', licences([...all.values()].sort((a, b) => (a.name < b.name ? -1 : 1))));
