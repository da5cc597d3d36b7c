package main

import (
	"strings"
	"testing"
)

func TestFlakyTestsAreListedWithTheirFirstFailure(t *testing.T) {
	for _, c := range []struct{ name, events, want string }{
		{"nothing failed", `
{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"pass","Package":"p","Test":"TestA"}
`, "FLAKY: none\n"},
		{"it fails each time", `
{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"fail","Package":"p","Test":"TestA"}
{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"fail","Package":"p","Test":"TestA"}
`, "FLAKY: none\n"},
		{"it passes at the third time, and another package has a test of that name", `
{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestA","Output":"one\n"}
{"Action":"fail","Package":"p","Test":"TestA"}
no event
{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestA","Output":"two\n"}
{"Action":"fail","Package":"p","Test":"TestA"}
{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestA","Output":"three\n"}
{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"pass","Package":"q","Test":"TestA"}
`, "FLAKY: 1\np TestA failed first and passed later. The first failure:\n    one\n"},
		{"a subtest", `
{"Action":"fail","Package":"p","Test":"TestA/x"}
{"Action":"fail","Package":"p","Test":"TestA"}
{"Action":"pass","Package":"p","Test":"TestA/x"}
{"Action":"pass","Package":"p","Test":"TestA"}
`, "FLAKY: 1\np TestA/x failed first and passed later. The first failure:\n"},
	} {
		var all runs
		if err := all.read(strings.NewReader(c.events)); err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		if all.print(&out); out.String() != c.want {
			t.Errorf("%s: the list is %q, want %q", c.name, out.String(), c.want)
		}
	}
}
