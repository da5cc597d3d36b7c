package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/xuri/excelize/v2"

	"github.com/holdfastq/holdfast/workshop/exampletest"
)

// Of each 50 rows of the sample, four are wrong. The result has the outcome of each row, in the order of the sample.
func TestEveryRowOfAnUploadHasAnOutcome(t *testing.T) {
	t.Parallel()
	exampletest.Run(t, func(t *testing.T, printed, folder string) {
		for _, want := range []string{
			"wrote sample.xlsx with 200 rows\n", "batch 1: done, 200 rows, 184 registered, 16 failed\n",
			"  row  12: the price \"free\" is not a positive number\n", "\nwrote result-1.xlsx\n",
		} {
			if !strings.Contains(printed, want) {
				t.Errorf("the output has no %q:\n%s", want, printed)
			}
		}
		f, err := excelize.OpenFile(filepath.Join(folder, "result-1.xlsx"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		lines, err := f.GetRows(f.GetSheetName(0))
		if err != nil || len(lines) != 201 {
			t.Fatalf("the result has %d rows, %v", len(lines), err)
		}
		failed := 0
		for i, line := range lines[1:] {
			if len(line) != 5 || line[0] != fmt.Sprint(i+2) {
				t.Fatalf("row %d of the result: %q", i+2, line)
			}
			if line[4] != fmt.Sprintf("registered as product %d", 1000+i+2) {
				failed++
			}
		}
		if failed != 16 || lines[21][4] != "the name is missing" {
			t.Errorf("%d rows have failed; row 22: %q", failed, lines[21])
		}
	})
}
