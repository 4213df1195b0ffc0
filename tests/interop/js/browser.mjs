// @stomp/stompjs on a page in headless Chromium: `node browser.mjs PORT SCENARIO…`. The scenario `chat=TOPIC`
// exchanges messages with another client on TOPIC; all others are those of stompjs_scenarios.mjs.

import { once } from 'node:events'
import { readFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import { join } from 'node:path'
import { withPage } from './chromium.mjs'
import * as scenarios from './stompjs_scenarios.mjs'
import { main } from './support.mjs'

const FILES = {
  '/': ['page.html', 'text/html; charset=utf-8'],
  '/page.mjs': ['page.mjs', 'text/javascript'],
  '/stompjs_scenarios.mjs': ['stompjs_scenarios.mjs', 'text/javascript'],
  '/support.mjs': ['support.mjs', 'text/javascript'],
  '/stompjs.js': ['node_modules/@stomp/stompjs/bundles/stomp.umd.min.js', 'text/javascript'],
}

/** Serves the page on a free port of its own, so that its origin has another port than the broker. */
async function serve() {
  const server = createServer(async (request, response) => {
    const [file, type] = FILES[request.url] ?? []
    if (!file) return response.writeHead(404).end()
    response.writeHead(200, { 'Content-Type': type }).end(await readFile(join(import.meta.dirname, file)))
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return server
}

/** Returns the scenario `name`, which the page runs. */
function find(page, name) {
  const url = port => `ws://127.0.0.1:${port}/stomp`
  if (name.startsWith('chat=')) {
    const topic = name.slice('chat='.length)
    return port => page.evaluate(([url, topic]) => globalThis.chat(url, topic), [url(port), topic])
  }
  if (name in scenarios) {
    return port => page.evaluate(([name, url]) => globalThis.scenario(name, url), [name, url(port)])
  }
}

const server = await serve()
const status = await withPage(`http://127.0.0.1:${server.address().port}/`, async page => {
  await page.waitForFunction(() => document.querySelector('#state').textContent === 'ready')
  return main(name => find(page, name))
})
process.exit(status)
