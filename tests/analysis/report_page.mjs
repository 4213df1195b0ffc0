// Opens a report in headless Chromium and prints its observations as JSON: `node report_page.mjs REPORT SCREENSHOT`.

import { pathToFileURL } from 'node:url'
import { withPage } from '../interop/js/chromium.mjs'

const [report, screenshot] = process.argv.slice(2)

const seen = await withPage('about:blank', async page => {
  const problems = []
  page.on('console', message => message.type() === 'error' && problems.push(message.text()))
  page.on('pageerror', error => problems.push(String(error)))
  page.on('request', request => request.url().startsWith('http') && problems.push(`requested ${request.url()}`))
  await page.goto(pathToFileURL(report).href)
  const column = name => page.evaluate(name => {
    const table = document.querySelector('#runs ~ .table table')
    const place = [...table.tHead.rows[0].cells].findIndex(cell => cell.textContent === name)
    return [...table.tBodies[0].rows].map(row => row.cells[place].dataset.value)
  }, name)
  const press = () => page.click('#runs ~ .table th button:text-is("cpu_us_per_delivery")')
  const ids = await page.evaluate(() => [...document.querySelectorAll('[id]')].map(element => element.id))
  const result = {
    verdict: await page.textContent('#verdict'),
    headings: await page.evaluate(() => [...document.querySelectorAll('h2')].map(heading => heading.textContent)),
    figures: await page.evaluate(() => [...document.querySelectorAll('figure svg')].map(svg => svg.getBoundingClientRect().height)),
    texts: await page.evaluate(() => document.querySelector('figure svg').textContent),
    duplicates: ids.filter((id, place) => ids.indexOf(id) !== place),
    unsorted: await column('cpu_us_per_delivery'),
  }
  await page.screenshot({ path: screenshot, fullPage: true })
  await press()
  result.ascending = await column('cpu_us_per_delivery')
  await press()
  result.descending = await column('cpu_us_per_delivery')
  await page.setViewportSize({ width: 360, height: 740 })
  result.phoneOverflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth)
  await page.screenshot({ path: screenshot.replace('.png', '-phone.png') })
  await page.emulateMedia({ media: 'print' })
  result.printed = await page.evaluate(() => getComputedStyle(document.querySelector('.screen')).display)
  return { ...result, problems }
})
console.log(JSON.stringify(seen))
process.exit(0)
