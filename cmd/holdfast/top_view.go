package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/contain"
)

// The escape sequences of the screen.
const (
	styleBold    = "\x1b[1m"
	styleFaint   = "\x1b[2m"
	styleReverse = "\x1b[7m"
	styleRed     = "\x1b[31m"
	styleEnd     = "\x1b[0m"
)

// lateAfter is how long a due task may wait before its age is red.
const lateAfter = time.Minute

// leastFlexible is the least width of the column that takes what the others leave.
const leastFlexible = 12

// textWidth returns the number of columns of a text on the screen.
func textWidth(s string) int { return text.StringWidthWithoutEscSequences(s) }

// padded returns a text that fills a width. It shortens a longer text.
func padded(s string, width int, right bool) string {
	if width <= 0 {
		return ""
	}
	s = shortened(s, width)
	space := strings.Repeat(" ", max(0, width-textWidth(s)))
	if right {
		return space + s
	}
	return s + space
}

// styled returns a text in a style.
func styled(style, s string) string { return style + s + styleEnd }

// inColor returns a text in a color, if colors are enabled.
func (m *topModel) inColor(color, s string) string {
	if !m.o.colors {
		return s
	}
	return styled(color, s)
}

// View implements tea.Model. If it panics because of a stored value, the screen has the panic and no figures.
func (m *topModel) View() tea.View {
	v, err := contain.Value(func() (tea.View, error) { return m.screen(), nil })
	if err != nil {
		v = tea.NewView(shortened(m.o.message(err), m.width) + "\nq quits")
		v.AltScreen = true
	}
	return v
}

// screen returns the whole screen.
func (m *topModel) screen() tea.View {
	lines := m.header()
	if m.isTable() {
		lines = append(lines, m.tableLines()...)
	} else {
		lines = append(lines, m.lines[min(m.place().row, len(m.lines)):min(m.place().row+m.rows(), len(m.lines))]...)
	}
	footer, cursor := m.footer()
	for len(lines) < m.height-len(footer) {
		lines = append(lines, "")
	}
	lines = append(lines[:max(0, min(len(lines), m.height-len(footer)))], footer...)
	v := tea.NewView(strings.Join(lines[:min(len(lines), m.height)], "\n"))
	v.AltScreen = true
	if cursor >= 0 {
		v.Cursor = tea.NewCursor(cursor, max(0, m.height-len(footer)))
	}
	return v
}

// rows returns how many rows or lines of the present place fit on the screen.
func (m *topModel) rows() int {
	footer, _ := m.footer()
	n := m.height - m.headerHeight() - len(footer)
	if m.isTable() {
		n-- // the heads
	}
	return max(1, n)
}

// headerHeight returns the number of lines above the present place. A low screen has fewer of them.
func (m *topModel) headerHeight() int {
	if m.height < 12 {
		return 2
	}
	return 5
}

// header returns the lines above the present place.
func (m *topModel) header() []string {
	if m.headerHeight() == 2 {
		return []string{m.titleLine(), m.placeLine()}
	}
	return []string{m.titleLine(), m.stateLine(), m.rateLine(), m.tabLine(), m.placeLine()}
}

// titleLine says how old the figures are.
func (m *topModel) titleLine() string {
	status := "every " + m.o.every.String()
	switch {
	case !m.away.IsZero():
		status = "server away since " + m.away.Format(time.TimeOnly) + ", trying again"
	case m.paused:
		status = "paused"
	case m.readAt.IsZero():
		status = "reading"
	}
	left, right := "holdfast top  ", ""
	if !m.readAt.IsZero() {
		right = m.readAt.Format(time.TimeOnly)
	}
	if m.width < textWidth(left)+leastFlexible+textWidth(right) {
		return shortened(status, m.width)
	}
	middle := padded(status, m.width-textWidth(left)-textWidth(right)-1, false)
	switch {
	case !m.away.IsZero():
		middle = m.inColor(styleRed, middle)
	case m.paused:
		middle = styled(styleBold, middle)
	}
	return styled(styleBold, left) + middle + " " + right
}

// stateLine has the numbers of tasks.
func (m *topModel) stateLine() string {
	line := "tasks    "
	for _, state := range holdfast.States() {
		number := "–"
		if m.head.states != nil {
			number = fmt.Sprint(m.head.states[state])
		}
		line += fmt.Sprintf("%s %s  ", state, number)
	}
	return shortened(strings.TrimSpace(line), m.width)
}

// rateLine has the rates, the oldest task and the workers.
func (m *topModel) rateLine() string {
	rate := func(state holdfast.State) string {
		return m.meter.rate(func(s topSample) int64 { return s.states[state] }).text
	}
	late := fmt.Sprintf("oldest due %s", unit(m.head.oldest))
	line := fmt.Sprintf("flow     done %s/s  dead %s/s  %s  workers %d  busy %d of %d",
		rate(holdfast.Done), rate(holdfast.Dead), late, m.head.live, m.head.running, m.head.executors)
	line = shortened(line, m.width)
	if m.head.oldest > lateAfter {
		line = strings.Replace(line, late, m.inColor(styleRed, late), 1)
	}
	return line
}

// tabLine has the views.
func (m *topModel) tabLine() string {
	var tabs []string
	for i, root := range m.roots {
		tab := fmt.Sprintf(" %d %s ", i+1, root.title)
		if root == m.path[0] {
			tab = styled(styleReverse, tab)
		}
		tabs = append(tabs, tab)
	}
	line := strings.Join(tabs, " ")
	if textWidth(line) > m.width {
		return ""
	}
	return line
}

// placeLine says what the present place shows.
func (m *topModel) placeLine() string {
	p := m.place()
	line := p.title
	switch {
	case m.searches() && p.want.query != "":
		line += ": " + singleLine(p.want.query)
	case p.filter != "":
		line += ` with "` + singleLine(p.filter) + `"`
	case p.want.view == viewTask && p.data != nil && p.data.task != nil:
		line += ": " + singleLine(p.data.task.Type) + ", " + string(p.data.task.State)
	}
	var notes []string
	switch {
	case p.want.view == viewHelp:
	case p.data == nil:
		notes = append(notes, "reading")
	case m.isTable():
		notes = append(notes, plural(len(m.table.rows), "row"))
		if p.data.note != "" {
			notes = append(notes, p.data.note)
		}
	case len(m.lines) > m.rows():
		notes = append(notes, fmt.Sprintf("lines %d to %d of %d", p.row+1, min(p.row+m.rows(), len(m.lines)), len(m.lines)))
	}
	right := strings.Join(notes, ", ")
	if m.head.broker != nil && m.path[0].want.view == viewQueues && len(m.path) == 1 {
		right = m.o.message(m.head.broker)
	}
	if right = shortened(right, m.width/2); m.width < 2*leastFlexible {
		right = ""
	}
	if right == "" {
		return shortened(line, m.width)
	}
	return padded(line, m.width-textWidth(right)-1, false) + " " + right
}

// shownColumn is a column on the screen, with its final width.
type shownColumn struct {
	topColumn
	index, width int
}

// shownColumns returns the columns that fit on the screen, as wide as their contents need. If they need too much, the
// flexible column stays as wide as leastFlexible, and the last ones are left out.
func (m *topModel) shownColumns() []shownColumn {
	var shown []shownColumn
	for i, c := range m.table.columns {
		if c.from > m.width {
			continue
		}
		width := max(c.width, textWidth(c.head)+1) // with the arrow of the order
		for _, row := range m.table.rows {
			if c.width > 0 && c.numeric {
				width = max(width, textWidth(row.cells[i].text))
			}
		}
		if c.width == 0 {
			width = leastFlexible
		}
		shown = append(shown, shownColumn{c, i, width})
	}
	rest := func() int {
		rest := m.width - 2 // the mark of the selection
		for _, c := range shown {
			rest -= c.width + columnGap
		}
		return rest + columnGap
	}
	for len(shown) > 2 && rest() < 0 {
		last := len(shown) - 1
		if shown[last].topColumn.width == 0 { // keep the flexible column
			last--
		}
		shown = slices.Delete(shown, last, last+1)
	}
	for i := range shown {
		if shown[i].topColumn.width == 0 {
			shown[i].width = max(1, shown[i].width+rest())
		}
	}
	return shown
}

// tableLines returns the heads and the rows on the screen.
func (m *topModel) tableLines() []string {
	p, columns := m.place(), m.shownColumns()
	line := func(mark string, cell func(shownColumn) string) string {
		cells := make([]string, len(columns))
		for i, c := range columns {
			cells[i] = cell(c)
		}
		return shortened(mark+strings.Join(cells, strings.Repeat(" ", columnGap)), m.width)
	}
	lines := []string{styled(styleBold, line("  ", func(c shownColumn) string {
		head := strings.ToUpper(c.head)
		if c.head == p.sort && p.descending {
			head += "↓"
		} else if c.head == p.sort {
			head += "↑"
		}
		return padded(head, c.width, c.numeric)
	}))}
	for i := p.top; i < min(p.top+m.rows(), len(m.table.rows)); i++ {
		row := m.table.rows[i]
		mark := "  "
		if i == p.row {
			mark = "> "
		}
		shown := line(mark, func(c shownColumn) string {
			cell := row.cells[c.index].text
			if c.head == "title" { // an error ends with its cause
				cell = withoutMiddle(cell, c.width)
			}
			return padded(cell, c.width, c.numeric)
		})
		if i == p.row {
			shown = styled(styleReverse, padded(shown, m.width, false))
		}
		lines = append(lines, shown)
	}
	if p.data != nil && len(m.table.rows) == 0 {
		lines = append(lines, shortened("  "+m.emptyText(), m.width))
	}
	return lines
}

// emptyText says why a table has no rows.
func (m *topModel) emptyText() string {
	p := m.place()
	switch {
	case p.filter != "":
		return "no row contains the filter; Esc removes it"
	case p.want.view == viewQueues:
		return "no task was stored yet"
	case p.want.view == viewWorkers:
		return "no live workers"
	case p.want.view == viewGroups:
		return "no dead tasks"
	}
	return "no tasks match"
}

// footer returns the lines at the bottom. cursor is the column of the cursor in the first of them, or -1.
func (m *topModel) footer() (lines []string, cursor int) {
	if m.prompt != nil {
		return m.promptLines()
	}
	if m.problem != "" {
		lines = append(lines, m.inColor(styleRed, shortened(m.problem, m.width)))
	}
	keys := "Enter open  Esc back  / filter  s sort  p pause  1-4 views  ? keys  q quit"
	switch m.place().want.view {
	case viewTask:
		keys = "Enter whole payload  Esc back  p pause  1-4 views  ? keys  q quit"
	case viewHelp:
		keys = "Esc back  q quit"
	}
	return append(lines, styled(styleFaint, shortened(keys, m.width))), -1
}

// promptLines returns the prompt and, below it, the error of the search with a mark at its place.
func (m *topModel) promptLines() (lines []string, cursor int) {
	label := "filter: "
	if m.searches() {
		label = "search: "
	}
	typed := printable(m.prompt.text)
	room := max(1, m.width-textWidth(label)-1)
	for textWidth(typed) > room { // show the end
		_, size := utf8.DecodeRuneInString(typed)
		typed = typed[size:]
	}
	lines = append(lines, shortened(label+typed, m.width))
	cursor = min(textWidth(label+typed), max(0, m.width-1))
	if bad := m.prompt.err; bad != nil {
		at := textWidth(label) + textWidth(printable(bad.Text[:bad.Offset]))
		if typed == printable(m.prompt.text) && at < m.width {
			lines = append(lines, strings.Repeat(" ", at)+"^")
		}
		for line := range strings.SplitSeq(text.WrapSoft(singleLine(bad.Error()), m.width), "\n") {
			for _, part := range wrappedLines(line, m.width, 0) { // WrapSoft is wrong about wide characters
				lines = append(lines, m.inColor(styleRed, part))
			}
		}
		return lines, cursor
	}
	hint := "Enter keeps the filter, Esc restores the one before"
	if m.searches() {
		hint = `such as: state:dead type:http error:"connection refused" since:2h`
	}
	return append(lines, styled(styleFaint, shortened(hint, m.width))), cursor
}
