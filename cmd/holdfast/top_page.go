package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/holdfastq/holdfast/configs"
)

const (
	foldedLines = 10       // lines of a payload before Enter shows all
	maxPage     = 64 << 10 // bytes of a payload on the page
)

// topKeys is the page that lists the keys.
var topKeys = []string{
	"1 2 3 4, Tab       queues, workers, dead groups, tasks; the next of them",
	"Up Down, k j       move by one row or line",
	"PgUp PgDn, Space   move by one screen; also Ctrl-B and Ctrl-F",
	"Home End, g G      first and last row",
	"Enter, Right, l    open: a queue, a worker and a group show their tasks, and a",
	"                   task its page; on the page of a task: the whole payload",
	"Esc, Left, h       go back; in one of the four views: remove the filter",
	"/                  filter: in the view of the tasks a search, as in",
	"                   holdfast task list -q; elsewhere rows that contain a text",
	"s                  sort by the next column; after the last one: no sort",
	"S                  reverse the order",
	"p                  pause, continue",
	"r                  refresh now",
	"Ctrl-Z             suspend",
	"q, Ctrl-C          quit",
}

// pageLines returns the lines of the present page.
func (m *topModel) pageLines() []string {
	p := m.place()
	switch {
	case p.want.view == viewHelp:
		var lines []string
		for _, line := range topKeys {
			lines = append(lines, shortened(line, m.width))
		}
		return lines
	case p.data == nil:
		return nil
	case p.data.task == nil:
		return []string{shortened("The store has no such task; it was deleted.", m.width)}
	}
	return m.o.page(p.data.task, m.width, p.unfolded)
}

// pageOf returns the lines of the page of a task: what "task explain" prints, and then what "task get" prints. All but
// the first lines of a long payload are left out, unless it is unfolded.
func (t topCommand) pageOf(task *topTask, width int, unfolded bool) []string {
	shown := &frame{terminal: true}
	onPage := *t.tool
	onPage.stdout, onPage.stderr, onPage.plain = shown, io.Discard, true
	onPage.env = append([]string{fmt.Sprintf("COLUMNS=%d", width)}, t.env...)
	commands := taskCommands{&onPage}

	// None of the writes below can fail, because they go to a buffer.
	_ = commands.describeExplanation(task.why)
	fmt.Fprintln(shown)
	listed, payload := task.ListedTask, task.Payload
	listed.Payload = nil
	_ = commands.describe(listed, task.Attempts, task.worker, task.KeptUntil)
	_ = commands.describeValues(task.Values, task.Attempt)
	lines := pageText(shown.String(), width)

	shown.Reset()
	rest := 0
	if len(payload) > maxPage {
		rest, payload = len(payload)-maxPage, json.RawMessage(bytes.ToValidUTF8(payload[:maxPage], nil))
	}
	_ = onPage.block("payload", indented(payload))
	folded := pageText(shown.String(), width)
	if hidden := len(folded) - foldedLines; hidden > 1 && !unfolded {
		folded = append(folded[:foldedLines], fmt.Sprintf("%*s(%s; Enter shows them)", labelWidth, "", plural(hidden, "more line")))
	} else if rest > 0 {
		folded = append(folded, fmt.Sprintf("%*s(%s; see: holdfast task get %s)", labelWidth, "", plural(rest, "more byte"), task.ID))
	}
	return append(lines, folded...)
}

// pageText returns the lines of a text, wrapped for a width.
func pageText(s string, width int) []string {
	var lines []string
	for line := range strings.Lines(s) {
		lines = append(lines, wrappedLines(strings.TrimRight(line, "\n"), width, labelWidth)...)
	}
	return lines
}

// wrappedLines returns a line as lines of at most width columns. All but the first one are indented, if there is room.
func wrappedLines(line string, width, indent int) []string {
	if indent > width/2 {
		indent = 0
	}
	var lines []string
	var b strings.Builder
	column := 0
	for _, r := range line {
		n := text.RuneWidth(r)
		if column+n > max(1, width) && column > 0 {
			lines = append(lines, b.String())
			b.Reset()
			b.WriteString(strings.Repeat(" ", indent))
			column = indent
		}
		b.WriteRune(r)
		column += n
	}
	return append(lines, b.String())
}

// shortMessage returns the text of an error on one line, without passwords.
func (t topCommand) shortMessage(err error) string {
	return configs.RedactText(singleLine(t.message(err)))
}
