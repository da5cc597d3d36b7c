package main

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/holdfastq/holdfast/surface"
)

// A payload, an output or an error that begins as a formula is a text in a spreadsheet. Numbers stay numbers.
func TestCellsAreNoFormulas(t *testing.T) {
	t.Parallel()
	var to bytes.Buffer
	write, flush := csvResults(&to)
	for _, text := range []string{`=HYPERLINK("http://evil.example")`, "+cmd|' /C calc'!A0", "-2+3", "@SUM(1)", "\tx", "\rx", "-5", "+3.5e2", "-Inf", "-0x1p3", "plain", "a=b", ""} {
		quoted, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		if err := write(surface.BatchResult{ID: 1, Payload: quoted, Output: json.RawMessage("-7"), Error: text}); err != nil {
			t.Fatal(err)
		}
	}
	if err := flush(); err != nil {
		t.Fatal(err)
	}
	const want = `id,state,payload,output,error
1,,"'=HYPERLINK(""http://evil.example"")",-7,"'=HYPERLINK(""http://evil.example"")"
1,,'+cmd|' /C calc'!A0,-7,'+cmd|' /C calc'!A0
1,,'-2+3,-7,'-2+3
1,,'@SUM(1),-7,'@SUM(1)
1,,'	x,-7,'	x
1,,"'` + "\r" + `x",-7,"'` + "\r" + `x"
1,,-5,-7,-5
1,,+3.5e2,-7,+3.5e2
1,,'-Inf,-7,'-Inf
1,,'-0x1p3,-7,'-0x1p3
1,,plain,-7,plain
1,,a=b,-7,a=b
1,,,-7,
`
	if to.String() != want {
		t.Errorf("the table is\n%q, want\n%q", to.String(), want)
	}
}
