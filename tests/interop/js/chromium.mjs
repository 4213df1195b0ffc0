// Headless Chromium with a page. CHROMIUM names the browser's executable.

import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { chromium } from 'playwright-core'

const FLAGS = [
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
]

/** Calls `use` with a page that shows `address`, then removes browser and profile. Page errors go to stderr. */
export async function withPage(address, use) {
  const profile = await mkdtemp(join(tmpdir(), 'stompica-chromium-'))
  const executablePath = process.env.CHROMIUM ?? '/usr/bin/chromium'
  const browser = await chromium.launchPersistentContext(profile, { executablePath, headless: true, args: FLAGS })
  try {
    const page = await browser.newPage()
    page.on('pageerror', error => console.error(`page: ${error}`))
    await page.goto(address)
    return await use(page)
  } finally {
    await browser.close()
    await rm(profile, { recursive: true, force: true })
  }
}
