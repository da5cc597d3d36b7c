package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"golang.org/x/term"
)

const (
	columnGap = 2  // columns of the terminal between two columns of a table
	leastText = 16 // before a table shortens a text to less than this, it leaves out columns of lessImportant
	leastCell = 4  // a table shortens no cell to less than this
	mostWhole = 26 // a table shortens no cell of wholeCells to less than this: "1000000/s and 10 at a time"
)

// lessImportant are the heads of the columns that a table leaves out, in this order, if it is wider than the terminal.
// A head means the same in all tables. A table keeps its first column.
var lessImportant = []string{
	"consumers", "pages", "surface", "weight", "before", "last hour", "first", "priority", "cancelled", "archived",
	"longest", "workers", "oldest", "started", "set by", "until", "parked", "blocked", "in use", "crashes", "owner", "reason",
	"actor", "created", "failures", "skipped", "queue", "note",
}

// leastTexts are the least widths of columns whose texts need more than leastText columns.
var leastTexts = map[string]int{"changes": 32, "note": 24}

// wholeCells are the heads of the columns with ids, fingerprints and states. A person copies them into the next command,
// so a table shortens all other columns first.
var wholeCells = []string{
	"id", "state", "group", "gate", "task", "active", "sample", "worker", "batch", "version", "attempt", "shard",
}

// wholeTexts are the heads of the columns whose texts a table wraps, because a part of such a text is useless.
var wholeTexts = []string{"detail", "problem", "description", "remedy", "value", "stored", "configured", "ignored"}

// middleTexts are the heads of the columns with errors and targets. An error ends with its cause, and a target with its
// host, so a table leaves out the middle.
var middleTexts = []string{"error", "subject"}

// wholeSubjects are the beginnings of the subjects with ids and fingerprints. A table shortens none of them.
var wholeSubjects = []string{"group ", "operation ", "task "}

// isWholeSubject reports whether a cell is a subject that a table does not shorten.
func isWholeSubject(head, cell string) bool {
	return head == "subject" && slices.ContainsFunc(wholeSubjects, func(s string) bool { return strings.HasPrefix(cell, s) })
}

// width returns the width of the terminal of stdout in columns, and 0 if stdout is not a terminal. The variable COLUMNS
// takes precedence.
func (t *terminal) width() int {
	if !isTerminal(t.stdout) {
		return 0
	}
	if n, err := strconv.Atoi(t.variable("COLUMNS")); err == nil && n > 0 {
		return n
	}
	if f := fileOf(t.stdout); f != nil {
		if n, _, err := term.GetSize(int(f.Fd())); err == nil && n > 0 {
			return n
		}
	}
	return 80 // the terminal does not report its width
}

// table writes columns with two spaces between them and without lines, so that tools such as awk and grep can read
// them. On a terminal the heads are bold, and the table fits into its width: see fit.
func (t *terminal) table(head table.Row, rows []table.Row) error {
	var leftOut []string
	if width := t.width(); width > 0 {
		head, rows, leftOut = fit(head, rows, width)
	}
	w := table.NewWriter()
	style := table.StyleDefault
	style.Options = table.OptionsNoBordersAndSeparators
	style.Box.PaddingLeft, style.Box.PaddingRight = "", strings.Repeat(" ", columnGap)
	style.Format.Header = text.FormatUpper
	if t.colors(t.stdout) {
		style.Color.Header = text.Colors{text.Bold}
	}
	w.SetStyle(style)
	w.SuppressTrailingSpaces()
	w.AppendHeader(head)
	w.AppendRows(rows)
	if _, err := fmt.Fprintln(t.stdout, w.Render()); err != nil {
		return err
	}
	if len(leftOut) > 0 {
		fmt.Fprintf(t.stderr, "left out: %s; to see all, use a wider terminal or -o json\n", strings.Join(leftOut, ", "))
	}
	return nil
}

// fit returns a table that fits into width columns of a terminal, if possible. If the table is too wide, fit first
// leaves out empty columns. Then it leaves out columns of lessImportant, until the table fits with texts of leastText
// columns, or those of leastTexts. At last it shortens the last column, and then the longest texts, but no column of
// wholeCells. leftOut has the heads of the columns of lessImportant that fit left out.
func fit(head table.Row, rows []table.Row, width int) (_ table.Row, _ []table.Row, leftOut []string) {
	all := append([]table.Row{head}, rows...)
	widest := func(i int, rows []table.Row) (n int) {
		for _, row := range rows {
			n = max(n, text.StringWidthWithoutEscSequences(fmt.Sprint(row[i])))
		}
		return n
	}
	kept, widths, whole := []int{}, make([]int, len(head)), make([]int, len(head))
	for i := range head {
		kept, widths[i] = append(kept, i), widest(i, all)
		if slices.Contains(wholeCells, fmt.Sprint(head[i])) {
			whole[i] = mostWhole
		}
		for _, row := range rows {
			if cell := fmt.Sprint(row[i]); isWholeSubject(fmt.Sprint(head[i]), cell) {
				whole[i] = max(whole[i], text.StringWidthWithoutEscSequences(cell))
			}
		}
	}
	least := width // limits the widths of leastTexts
	// limit returns the limit of the nth kept column, if cells have at most most columns, and mostLast in the last one.
	limit := func(n, most, mostLast int) int {
		i := kept[n]
		if n == len(kept)-1 && whole[i] == 0 {
			most = min(most, mostLast)
		}
		return max(most, whole[i], min(least, leastTexts[fmt.Sprint(head[i])]))
	}
	total := func(most, mostLast int) int {
		sum := columnGap * (len(kept) - 1)
		for n, i := range kept {
			sum += min(widths[i], limit(n, most, mostLast))
		}
		return sum
	}
	if total(width, width) <= width {
		return head, rows, nil
	}
	kept = slices.DeleteFunc(kept, func(i int) bool { return i > 0 && widest(i, rows) == 0 })
	for _, name := range lessImportant {
		if total(leastText, leastText) <= width {
			break
		}
		if name == "actor" && slices.Contains(head, any("changes")) {
			continue // the audit log always has the actors
		}
		before := len(kept)
		if kept = slices.DeleteFunc(kept, func(i int) bool { return i > 0 && head[i] == name }); len(kept) < before {
			leftOut = append(leftOut, name)
		}
	}
	most, mostLast := width, width
	shrink := func(n *int, to int) {
		for *n > to && total(most, mostLast) > width {
			*n--
		}
	}
	shrink(&mostLast, leastText)
	shrink(&most, leastText/2)
	shrink(&least, leastText)
	shrink(&most, leastCell)
	shrink(&least, leastCell)
	fitted := make([]table.Row, len(all))
	for n, row := range all {
		for k, i := range kept {
			cell, name, most := fmt.Sprint(row[i]), fmt.Sprint(head[i]), limit(k, most, mostLast)
			switch {
			case n == 0 || !slices.Contains(wholeTexts, name) && !slices.Contains(middleTexts, name):
				cell = shortened(cell, most)
			case slices.Contains(wholeTexts, name):
				cell = text.WrapSoft(cell, most)
			default:
				cell = withoutMiddle(cell, most)
			}
			fitted[n] = append(fitted[n], cell)
		}
	}
	return fitted[0], fitted[1:], leftOut
}

// shortened returns the beginning of a text, with at most width columns.
func shortened(s string, width int) string {
	if text.StringWidthWithoutEscSequences(s) <= width {
		return s
	}
	return strings.TrimRight(text.Trim(s, width-1), " ") + "…"
}

// withoutMiddle returns the beginning and the end of a text, with at most width columns.
func withoutMiddle(s string, width int) string {
	if text.StringWidthWithoutEscSequences(s) <= width {
		return s
	}
	runes := []rune(s)
	slices.Reverse(runes)
	end := []rune(text.Trim(string(runes), width/2))
	slices.Reverse(end)
	return shortened(s, width-text.StringWidthWithoutEscSequences(string(end))) + strings.TrimLeft(string(end), " ")
}

// wrapped returns a sentence that follows a label of labelWidth columns. On a terminal it wraps the sentence.
func (t *terminal) wrapped(s string) string {
	if width := t.width() - labelWidth; width > leastText {
		return text.WrapSoft(s, width)
	}
	return s
}
