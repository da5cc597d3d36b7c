package holdfast_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/holdfastq/holdfast"
)

func TestReportOf(t *testing.T) {
	t.Parallel()
	panicked := &holdfast.PanicError{Value: "oh", Stack: "goroutine 1"}
	for _, test := range []struct {
		err  error
		want holdfast.Report
	}{
		{nil, holdfast.Report{}},
		{errBoom, holdfast.Report{Class: "error", Error: "boom"}},
		{fmt.Errorf("x: %w", holdfast.ErrTimeout), holdfast.Report{Class: "timeout", Error: "x: the attempt timed out"}},
		{holdfast.ErrLeaseLost, holdfast.Report{Class: "lease_lost", Error: "the worker lost its lease"}},
		{holdfast.ErrDraining, holdfast.Report{Class: "drain", Error: "the worker is shutting down"}},
		{holdfast.Cancel(holdfast.ErrCancelled), holdfast.Report{Class: "cancelled", Error: "the task was cancelled"}},
		{holdfast.Permanent(holdfast.ErrInvalid), holdfast.Report{Class: "invalid", Error: "invalid"}},
		{holdfast.Permanent(nil), holdfast.Report{Class: "error", Error: "give_up"}},
		{fmt.Errorf("x: %w", panicked), holdfast.Report{Class: "panic", Error: "x: panic: oh", Stack: "goroutine 1"}},
		{holdfast.Detailed(panicked, "mine", 1), holdfast.Report{Class: "mine", Error: "panic: oh", Stack: "goroutine 1", Details: json.RawMessage("1")}},
		{holdfast.Detailed(holdfast.Detailed(errBoom, "inner", 1), "outer", 2), holdfast.Report{Class: "outer", Error: "boom", Details: json.RawMessage("2")}},
		{errors.New("a\x00b\xffc"), holdfast.Report{Class: "error", Error: "a\uFFFDb\uFFFDc"}},
	} {
		got := holdfast.ReportOf(test.err)
		if got.Class != test.want.Class || got.Error != test.want.Error || got.Stack != test.want.Stack || string(got.Details) != string(test.want.Details) {
			t.Errorf("%v: got %+v, want %+v", test.err, got, test.want)
		}
	}
}

func TestUnusableDetailsAreReplaced(t *testing.T) {
	t.Parallel()
	for want, details := range map[string]any{
		`{"unreadable":"json: unsupported type: func()"}`:                 func() {},
		`{"unreadable":"600002 bytes are more than the limit of 524288"}`: strings.Repeat("x", 600_000),
		"\"a\uFFFDb\"": json.RawMessage("\"a\xffb\""),
	} {
		if got := string(holdfast.ReportOf(holdfast.Detailed(errBoom, "c", details)).Details); got != want {
			t.Errorf("got %.100s, want %s", got, want)
		}
	}
	if err := holdfast.Detailed(nil, "c", 1); err != nil {
		t.Errorf("Detailed(nil) returns %v", err)
	}
	if class := holdfast.ReportOf(holdfast.Detailed(errBoom, strings.Repeat("\x00", 500), 1)).Class; len(class) > holdfast.MaxNameLength || strings.Contains(class, "\x00") {
		t.Errorf("got the class %q", class)
	}
}

func TestOutcomesKeepTheirReason(t *testing.T) {
	t.Parallel()
	for _, err := range []error{
		holdfast.Permanent(errBoom), holdfast.Defer(1, errBoom), holdfast.RetryAfter(1, errBoom), holdfast.Cancel(errBoom), holdfast.Detailed(errBoom, "c", nil),
	} {
		if !errors.Is(err, errBoom) || err.Error() != "boom" {
			t.Errorf("got %v", err)
		}
	}
}

// TestReportsFitEveryStore checks that the texts of a report are valid UTF-8 without NUL, and are cut between
// characters.
func TestReportsFitEveryStore(t *testing.T) {
	t.Parallel()
	fits := func(text string, limit int) bool {
		return len(text) <= limit && utf8.ValidString(text) && !strings.Contains(text, "\x00")
	}
	rapid.Check(t, func(t *rapid.T) {
		piece := rapid.SliceOfN(rapid.Byte(), 1, 20).Draw(t, "piece")
		text := strings.Repeat(string(piece), rapid.IntRange(0, 2000).Draw(t, "times"))
		report := holdfast.ReportOf(errors.Join(errors.New(text), &holdfast.PanicError{Value: 1, Stack: text}))
		if !fits(report.Error, holdfast.MaxErrorLength) || !fits(report.Stack, holdfast.MaxStackLength) {
			t.Fatalf("the error has %d bytes and the stack %d, from repetitions of %q", len(report.Error), len(report.Stack), piece)
		}
		if utf8.ValidString(text) && !strings.Contains(text, "\x00") && len(text) <= holdfast.MaxStackLength && report.Stack != text {
			t.Fatalf("%q was changed", text)
		}
		if len(report.Stack) > holdfast.MaxStackLength-8 && len(text) > 3*holdfast.MaxStackLength && !strings.HasSuffix(report.Stack, "…") {
			t.Fatalf("a cut text does not end in an ellipsis")
		}
	})
}
