// A form for a recording: a file, chosen or dropped, or the microphone; what is sent are the bytes of a file in Base64.

import { empty, field, h } from "./dom.js";
import { chips } from "./forms.js";

const RATE = 16000; // samples a second of what the page itself makes
const LONGEST = 30; // seconds that the microphone records
const LARGEST = 2_900_000; // bytes of a file that is sent as it is: as Base64 it fits the usual limit of the service
const FOREIGN = /\.(webm|m4a|mp4|aac|wma)$/i; // formats that only a browser decodes

let last = null; // the recording that all tabs show

/** The form; `done({name, data})` gets each recording, and at once the last one of another tab, or the first example of
 *  the model. `name` labels it. */
export function recordingForm(done, { name = "Recording", shared = true, model = {} } = {}) {
  const wrong = h("p", { class: "error", role: "alert" }), given = h("p", { class: "note" });
  const input = h("input", { type: "file", accept: "audio/*,.wav,.flac,.ogg,.opus,.mp3,.aiff,.au,.caf,.nist,.sph", "aria-label": name, onchange: () => take(input.files[0]) });
  const button = h("button", { type: "button", onclick: () => (running ? running.stop() : listen()) }, "Record");
  let running = null;

  async function take(file, title = file?.name) {
    if (!file) return;
    empty(wrong);
    try {
      const found = { name: title, data: await encoded(file) };
      if (shared) last = found;
      empty(given, file === input.files[0] ? null : `Given: ${title}`);
      done(found);
    } catch (error) {
      empty(wrong, error.message);
    }
  }

  async function listen() {
    empty(wrong);
    try {
      running = await microphone((seconds) => (button.textContent = `Stop (${seconds.toFixed(0)} s)`));
    } catch (error) {
      return void empty(wrong, error.message);
    }
    button.classList.add("main");
    const blob = await running.ended;
    running = null;
    button.classList.remove("main");
    button.textContent = "Record";
    if (form.isConnected) take(new File([blob], "microphone.webm"), "the microphone");
  }

  const form = h(
    "form",
    { onsubmit: (event) => event.preventDefault(), ondragover: (event) => event.preventDefault(), ondrop: (event) => (event.preventDefault(), take(event.dataTransfer.files[0])) },
    h("div", { class: "row" }, field(`${name}: choose a file, drop one here, or record`, input), button),
    given,
    wrong,
  );
  const example = (item, at = "an example of the model") => ({ name: item.expected ? `${at}: ${item.expected}` : at, data: item.recording });
  const offered = chips(model, ["recording"], (item) => (empty(given, `Given: ${example(item).name}`), done(example(item))));
  if (offered) form.append(offered);
  const [first] = model.examples?.items ?? [];
  if (shared && !last && first?.recording) queueMicrotask(() => (empty(given, `Given: ${example(first).name}`), done(example(first))));
  if (shared && last) queueMicrotask(() => (empty(given, `Given: ${last.name}`), done(last)));
  return form;
}

/** The bytes of a file in Base64; a format that the service does not read, or a large file, as WAV of 16 bit. */
async function encoded(file) {
  if (file.size <= LARGEST && !FOREIGN.test(file.name)) return base64(file);
  let sound;
  try {
    sound = await new OfflineAudioContext(1, 1, RATE).decodeAudioData(await file.arrayBuffer());
  } catch {
    throw new Error(file.size > LARGEST ? `${file.name} has more than ${LARGEST / 1e6} MB, and the browser cannot decode it: give a shorter recording.` : `The browser cannot decode ${file.name}: give a WAV, FLAC, OGG or MP3 file.`);
  }
  const wave = wav(sound);
  if (wave.size > LARGEST) throw new Error(`${file.name} has ${Math.round(sound.duration)} seconds, and the page sends at most ${Math.floor(LARGEST / 2 / RATE)}: give a shorter recording.`);
  return base64(wave);
}

/** An AudioBuffer as a WAV file: the mean of its channels, 16 bit. */
function wav(sound) {
  const samples = new Int16Array(sound.length), channels = Array.from({ length: sound.numberOfChannels }, (_, i) => sound.getChannelData(i));
  for (let i = 0; i < samples.length; i++) {
    const mean = channels.reduce((sum, channel) => sum + channel[i], 0) / channels.length;
    samples[i] = Math.max(-32768, Math.min(32767, Math.round(mean * 32768)));
  }
  const head = new DataView(new ArrayBuffer(44)), size = samples.byteLength, rate = sound.sampleRate;
  const text = (at, word) => [...word].forEach((letter, i) => head.setUint8(at + i, letter.charCodeAt(0)));
  [[0, "RIFF"], [8, "WAVEfmt "], [36, "data"]].forEach(([at, word]) => text(at, word));
  [[4, 36 + size], [16, 16], [24, rate], [28, 2 * rate], [40, size]].forEach(([at, value]) => head.setUint32(at, value, true));
  [[20, 1], [22, 1], [32, 2], [34, 16]].forEach(([at, value]) => head.setUint16(at, value, true));
  return new Blob([head, samples]);
}

/** Begin to record: {stop(), ended: promises the bytes}. Throws an Error with one sentence. */
async function microphone(tick) {
  if (!navigator.mediaDevices?.getUserMedia) throw new Error("The browser gives a microphone only to pages on this machine or over HTTPS: choose a file.");
  let stream;
  try {
    stream = await navigator.mediaDevices.getUserMedia({ audio: true });
  } catch (error) {
    throw new Error(error.name === "NotFoundError" ? "There is no microphone: choose a file." : "The browser refused the microphone: allow it for this page, or choose a file.");
  }
  const recorder = new MediaRecorder(stream, { audioBitsPerSecond: 128000 }), parts = [], begun = performance.now();
  recorder.ondataavailable = ({ data }) => parts.push(data);
  const timer = setInterval(() => {
    const seconds = (performance.now() - begun) / 1000;
    tick(seconds);
    if (seconds >= LONGEST) stop();
  }, 200);
  const stop = () => recorder.state === "inactive" || recorder.stop();
  const ended = new Promise((done) => {
    recorder.onstop = () => {
      clearInterval(timer);
      stream.getTracks().forEach((track) => track.stop());
      done(new Blob(parts));
    };
  });
  recorder.start();
  tick(0);
  return { stop, ended };
}

/** The bytes of a file in Base64. */
export async function base64(file) {
  const source = await new Promise((done, failed) => {
    const reader = new FileReader();
    reader.onload = () => done(reader.result);
    reader.onerror = () => failed(new Error(`The browser cannot read ${file.name}.`));
    reader.readAsDataURL(file);
  });
  return source.slice(source.indexOf(",") + 1);
}
