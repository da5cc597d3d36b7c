package console

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/search"
	"github.com/holdfastq/holdfast/surface"
)

func TestNumbers(t *testing.T) {
	t.Parallel()
	seven := 7
	for _, c := range []struct {
		value        any
		count, exact string
	}{
		{0, "0", "0"}, {7, "7", "7"}, {-7, "-7", "-7"}, {999, "999", "999"}, {1000, "1,000", "1,000"}, {int64(9999), "9,999", "9,999"}, {-9999, "-9,999", "-9,999"},
		{10_000, "10.0k", "10,000"}, {12_345, "12.3k", "12,345"}, {-12_345, "-12.3k", "-12,345"}, {99_949, "99.9k", "99,949"}, {123_456, "123k", "123,456"},
		{99_960, "100k", "99,960"}, {999_499, "999k", "999,499"}, {999_500, "1.00M", "999,500"}, {1_000_000, "1.00M", "1,000,000"}, {-1_234_567, "-1.23M", "-1,234,567"},
		{9_999_999, "10.0M", "9,999,999"}, {1_234_567_890, "1.23G", "1,234,567,890"}, {int64(5e12), "5.00T", "5,000,000,000,000"}, {int64(5e15), "5000T", "5,000,000,000,000,000"},
		{int64(9_007_199_254_740_993), "9007T", "9,007,199,254,740,993"},
		{2.5, "3", "3"}, {float64(0.4), "0", "0"}, {&seven, "7", "7"}, {(*int)(nil), "–", "unknown"}, {(*int64)(nil), "–", "unknown"}, {nil, "–", "unknown"}, {"7", "–", "unknown"},
	} {
		if got := count(c.value); got != c.count {
			t.Errorf("count(%v) = %q, not %q", c.value, got, c.count)
		}
		if got := exact(c.value); got != c.exact {
			t.Errorf("exact(%v) = %q, not %q", c.value, got, c.exact)
		}
	}
}

func TestDurations(t *testing.T) {
	t.Parallel()
	for value, want := range map[any]string{
		time.Duration(0): "0 s", time.Microsecond: "1 ms", 840 * time.Millisecond: "840 ms", 999_999 * time.Microsecond: "999 ms", time.Second: "1 s",
		4200 * time.Millisecond: "4.2 s", 9_940 * time.Millisecond: "9.9 s", 10 * time.Second: "10 s", 59_900 * time.Millisecond: "59 s", time.Minute: "1 min",
		190 * time.Second: "3 min 10 s", 11*time.Minute + 10*time.Second: "11 min", time.Hour: "1 h", 90 * time.Minute: "1 h 30 min", 23*time.Hour + 59*time.Minute: "23 h",
		24 * time.Hour: "1 d", 30 * time.Hour: "1 d 6 h", 400 * 24 * time.Hour: "400 d", -190 * time.Second: "–3 min 10 s",
		surface.Duration(4200 * time.Millisecond): "4.2 s",
	} {
		if got := duration(value); got != want {
			t.Errorf("duration(%v) = %q, not %q", value, got, want)
		}
	}
}

func TestTimes(t *testing.T) {
	t.Parallel()
	now := time.Date(2030, 1, 31, 9, 0, 0, 0, time.UTC)
	for passed, want := range map[time.Duration]string{
		0: "now", 999 * time.Millisecond: "now", -time.Second: "now", time.Second: "1 s ago", 59_900 * time.Millisecond: "59 s ago",
		3*time.Minute + 500*time.Millisecond: "3 min ago", 30 * time.Hour: "1 d 6 h ago", -1500 * time.Millisecond: "in 1 s", -90 * time.Second: "in 1 min 30 s",
	} {
		if got := ago(now, now.Add(-passed)); got != want {
			t.Errorf("ago(%s) = %q, not %q", passed, got, want)
		}
	}
	if got := ago(now, time.Time{}); got != "–" {
		t.Errorf("ago(never) = %q", got)
	}
	local := time.Date(2030, 1, 31, 10, 0, 0, 1_234_567, time.FixedZone("CET", 3600))
	if got := stamp(local); got != "2030-01-31 09:00:00.001 UTC" {
		t.Errorf("stamp = %q", got)
	}
	if got := stamp(time.Time{}); got != "–" {
		t.Errorf("stamp(never) = %q", got)
	}
}

func TestSparks(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		values []int64
		want   string
	}{
		{nil, ""}, {[]int64{5}, "0.0,1.0"}, {[]int64{0, 0}, "0.0,19.0 100.0,19.0"}, {[]int64{0, 5, 10}, "0.0,19.0 50.0,10.0 100.0,1.0"},
	} {
		if got := sparks(c.values); got != c.want {
			t.Errorf("sparks(%v) = %q, not %q", c.values, got, c.want)
		}
	}
}

func TestShares(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		part, whole any
		want        int
	}{{0, 0, 0}, {5, 0, 0}, {1, 4, 25}, {4, 4, 100}, {9, 4, 100}, {-1, 4, 0}, {1, 3, 33}, {nil, 4, 0}, {int64(1), (*int64)(nil), 0}} {
		if got := percent(c.part, c.whole); got != c.want {
			t.Errorf("percent(%v, %v) = %d, not %d", c.part, c.whole, got, c.want)
		}
	}
	if got := share(0.125); got != "12.5 %" {
		t.Errorf("share = %q", got)
	}
}

func TestStates(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for want, task := range map[string]holdfast.Task{
		"ready":     {State: holdfast.Ready, Attempt: 1, NextRunAt: now},
		"scheduled": {State: holdfast.Ready, Attempt: 1, NextRunAt: now.Add(time.Hour)},
		"retrying":  {State: holdfast.Ready, Attempt: 2, NextRunAt: now.Add(time.Hour)},
		"dead":      {State: holdfast.Dead, Attempt: 5},
	} {
		if got := stateView(task, now, false); got.Name != want {
			t.Errorf("%+v is shown as %s, not %s", task, got.Name, want)
		}
	}
	if got := stateView(holdfast.Task{State: holdfast.Ready}, now, true); got.Name != "blocked" {
		t.Errorf("a blocked task is shown as %s", got.Name)
	}
}

// TestTerms checks that the search reads each term as its value.
func TestTerms(t *testing.T) {
	t.Parallel()
	for _, value := range []string{"tenant-7", "tenant 7", `a "b" c`, `a\b`, `\`, `"`, `x\" y`, "a\tb", "ä:b"} {
		f, err := search.Parse("state:dead "+term("key", value), time.Now())
		if err != nil || f.Key != value {
			t.Errorf("%s means %q, not %q: %v", term("key", value), f.Key, value, err)
		}
	}
	if got := term("key", "tenant-7"); got != "key:tenant-7" {
		t.Errorf("a simple term is %s", got)
	}
}

// flat returns a tree in one line.
func flat(n *node) string {
	if n == nil {
		return "none"
	}
	text := n.Kind
	if n.Name != "" {
		text = n.Name + "=" + text
	}
	if n.Text != "" {
		text += ":" + n.Text
	}
	if n.Fold {
		text += " folded"
	}
	var children []string
	for _, c := range n.Children {
		children = append(children, flat(c))
	}
	if len(children) > 0 {
		text += "[" + strings.Join(children, " ") + "]"
	}
	return text
}

func TestTreeOfADocument(t *testing.T) {
	t.Parallel()
	for document, want := range map[string]string{
		`9007199254740993`:                   "number:9007199254740993",
		`1.10`:                               "number:1.10",
		`-0`:                                 "number:-0",
		`1E400`:                              "number:1E400",
		`123456789012345678901234567`:        "number:123456789012345678901234567",
		`{"z":1,"a":[true,null,"x"],"m":{}}`: "object[z=number:1 a=array[bool:true null:null string:x] m=object]",
		`{"a":1,"a":2}`:                      "object[a=number:1 a=number:2]",
		`[]`:                                 "array",
		`"<b>"`:                              "string:<b>",
		``:                                   "none",
		`{"a":`:                              "none",
		`[1`:                                 "none",
		`1 2`:                                "none",
	} {
		if got := flat(nodeOf(json.RawMessage(document))); got != want {
			t.Errorf("%s: %s, not %s", document, got, want)
		}
	}
}

func TestLargeDocuments(t *testing.T) {
	t.Parallel()
	list := func(n int) string { return "[" + strings.TrimSuffix(strings.Repeat("1,", n), ",") + "]" }
	n := nodeOf(json.RawMessage(fmt.Sprintf(`{"few":%s,"many":%s}`, list(foldAbove), list(foldAbove+1))))
	if n == nil || n.Fold || n.Children[0].Fold || !n.Children[1].Fold {
		t.Errorf("folding: %s", flat(n))
	}
	if n := nodeOf(json.RawMessage(list(foldAbove + 1))); n == nil || n.Fold {
		t.Errorf("the top is folded: %s", flat(n))
	}
	if n := nodeOf(json.RawMessage(list(maxNodes - 1))); n == nil || len(n.Children) != maxNodes-1 {
		t.Error("a document with as many values as may be shown has no tree")
	}
	if n := nodeOf(json.RawMessage(list(maxNodes))); n != nil {
		t.Error("a document with too many values has a tree")
	}
	if n := nodeOf(json.RawMessage(strings.Repeat("[", maxNodes+1) + strings.Repeat("]", maxNodes+1))); n != nil {
		t.Error("a document that is too deep has a tree")
	}
}

func TestEventTexts(t *testing.T) {
	t.Parallel()
	if got := eventText(holdfast.EventGiveUp) + ", " + eventText("new_event"); got != "gave up, new event" {
		t.Error(got)
	}
}
