// A press on a heading sorts the table by that column: numbers by value, other cells as text, empty cells last.
for (const table of document.querySelectorAll('table')) {
  const headings = [...table.tHead.rows[0].cells]
  headings.forEach((heading, column) => {
    heading.querySelector('button').addEventListener('click', () => {
      const up = heading.getAttribute('aria-sort') !== 'ascending'
      const value = row => row.cells[column].dataset.value ?? row.cells[column].textContent
      const numeric = heading.classList.contains('number')
      const order = (a, b) => {
        const [x, y] = [value(a), value(b)]
        if (x === '' || y === '') return (x === '') - (y === '')
        return (up ? 1 : -1) * (numeric ? x - y : x.localeCompare(y))
      }
      table.tBodies[0].append(...[...table.tBodies[0].rows].sort(order))
      for (const other of headings) other.removeAttribute('aria-sort')
      heading.setAttribute('aria-sort', up ? 'ascending' : 'descending')
    })
  })
}
