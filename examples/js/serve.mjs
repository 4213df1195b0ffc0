// Serves index.html on the port `--page` (0: a free one) and prints its address: `node serve.mjs --page 8000`

import { readFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import { join } from 'node:path'
import { options } from './client.mjs'

const FILES = {
  '/': ['index.html', 'text/html; charset=utf-8'],
  '/index.mjs': ['index.mjs', 'text/javascript'],
  '/node_modules/@stomp/stompjs/bundles/stomp.umd.min.js': [
    'node_modules/@stomp/stompjs/bundles/stomp.umd.min.js',
    'text/javascript',
  ],
}

const { page } = options({ page: 8000 })

const server = createServer(async (request, response) => {
  const [file, type] = FILES[new URL(request.url, 'http://page').pathname] ?? []
  if (!file) return response.writeHead(404).end()
  response.writeHead(200, { 'Content-Type': type }).end(await readFile(join(import.meta.dirname, file)))
})
server.listen(page, '127.0.0.1', () => console.log(`http://127.0.0.1:${server.address().port}/`))
