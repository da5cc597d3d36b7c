package main

import (
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/xuri/excelize/v2"
)

var columns = []any{"sku", "name", "price"}

// rows returns the rows of the first sheet of a file after the row with the names of the columns. It reads one row at a
// time.
func rows(path string) iter.Seq2[row, error] {
	return func(yield func(row, error) bool) {
		f, err := excelize.OpenFile(path)
		if err != nil {
			yield(row{}, err)
			return
		}
		defer f.Close()
		found, err := f.Rows(f.GetSheetName(0))
		if err != nil {
			yield(row{}, err)
			return
		}
		defer found.Close()
		for number := 1; found.Next(); number++ {
			cells, err := found.Columns()
			if err == nil && (number == 1 || len(cells) == 0) { // names, or an empty row
				continue
			}
			cells = append(cells, make([]string, len(columns))...)[:len(columns)] // empty cells at the end are missing
			if !yield(row{number, cells}, err) {
				return
			}
		}
		if err := found.Error(); err != nil {
			yield(row{}, err)
		}
	}
}

// writeSample writes a sheet with the given number of rows, some of which are wrong.
func writeSample(path string, count int) error {
	lines := make([][]any, count)
	for i := range lines {
		price := fmt.Sprintf("%d.90", 5+i%40)
		lines[i] = []any{fmt.Sprintf("SKU-%04d", i+1), fmt.Sprintf("Product %d", i+1), price}
		switch i % 50 {
		case 10:
			lines[i][2] = "free"
		case 20:
			lines[i][1] = ""
		case 30:
			lines[i][0] = ""
		case 40:
			lines[i][0] = fmt.Sprintf("SKU-%04d", i) // that of the row before
		}
	}
	return write(path, columns, lines)
}

// outcome is what has become of a row.
type outcome struct {
	row
	text string
}

// writeResult writes a sheet with the rows of an upload and their outcomes.
func writeResult(path string, outcomes []outcome) error {
	slices.SortFunc(outcomes, func(a, b outcome) int { return a.Number - b.Number })
	lines := make([][]any, len(outcomes))
	for i, o := range outcomes {
		lines[i] = []any{o.Number, o.Cells[0], o.Cells[1], o.Cells[2], o.text}
	}
	return write(path, append(append([]any{"row"}, columns...), "outcome"), lines)
}

// write writes a file with one sheet.
func write(path string, names []any, lines [][]any) (err error) {
	f := excelize.NewFile()
	defer func() { err = errors.Join(err, f.Close()) }()
	sheet, err := f.NewStreamWriter(f.GetSheetName(0))
	if err != nil {
		return err
	}
	for i, line := range append([][]any{names}, lines...) {
		if err := sheet.SetRow(fmt.Sprintf("A%d", i+1), line); err != nil {
			return err
		}
	}
	if err := sheet.Flush(); err != nil {
		return err
	}
	return f.SaveAs(path)
}
