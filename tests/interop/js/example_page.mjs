// Uses the example page like a person: `node example_page.mjs PORT DESTINATION`. Prints READY when it is connected,
// waits for a message, sends one, disconnects, prints PASS page.

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { withPage } from './chromium.mjs'
import { equal } from './support.mjs'

const [port, destination] = process.argv.slice(2)

const script = join(import.meta.dirname, '../../../examples/js/serve.mjs')
const server = spawn(process.execPath, [script, '--page', '0'], { stdio: ['ignore', 'pipe', 'inherit'] })
process.once('exit', () => server.kill())
const [address] = await once(server.stdout.setEncoding('utf8'), 'data')

const query = new URLSearchParams({ broker: `ws://127.0.0.1:${port}/stomp`, destination })
await withPage(`${address.trim()}?${query}`, async page => {
  const state = text => page.waitForFunction(text => document.querySelector('#state').textContent === text, text)
  await page.click('#connect')
  await state('connected')
  console.log('READY')
  await page.waitForSelector('#messages li')
  equal(await page.textContent('#messages li'), `${destination}: hello <b>page</b>`)
  await page.fill('#body', 'hello from the page')
  await page.click('#send')
  await page.waitForSelector('#messages li:nth-child(2)')
  await page.click('#disconnect')
  await state('not connected')
  console.log('PASS page')
})
process.exit(0)
