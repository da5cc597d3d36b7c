package diff

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestDifferencesHavePathsAndEveryDigit(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ was, is, want string }{
		{`{"a":1}`, `{ "a" : 1 }`, ""},
		{`1`, `2`, " changed 1 2"},
		{`{"a":12345678901234567890}`, `{"a":12345678901234567891}`, "/a changed 12345678901234567890 12345678901234567891"},
		{`{"a":1.0}`, `{"a":1}`, "/a changed 1.0 1"},
		{`{"a":1,"b":2}`, `{"b":3,"c":null}`, "/a removed 1 |/b changed 2 3|/c added  null"},
		{`{"a":{"b/c~d":1}}`, `{"a":{"b/c~d":"1"}}`, `/a/b~1c~0d changed 1 "1"`},
		{`{"a":1,"b":2}`, `{"b":2,"a":1}`, " order a, b b, a"},
		{`{"a":1,"a":2}`, `{"a":1,"a":3}`, "/a changed 2 3"},
		{`[1,2,3]`, `[2,3]`, "/0 removed 1 "},
		{`[1,2,3]`, `[1,9,2,3]`, "/1 added  9"},
		{`[1,{"x":1},3]`, `[1,{"x":2},3,4]`, "/1/x changed 1 2|/3 added  4"},
		{`[1,1,1]`, `[1,1]`, "/2 removed 1 "},
		{`[]`, `{}`, " changed [] {}"},
		{`{"a":"<b>"}`, `{"a":"\u003cb>"}`, `/a changed "<b>" "\u003cb>"`},
		{`null`, ``, " changed null "},
	} {
		var lines []string
		for _, d := range Of(json.RawMessage(c.was), json.RawMessage(c.is)).List {
			lines = append(lines, fmt.Sprintf("%s %s %s %s", d.Path, d.Kind, d.Was, d.Is))
		}
		if got := strings.Join(lines, "|"); got != c.want {
			t.Errorf("%s to %s: %s; want %s", c.was, c.is, got, c.want)
		}
	}
}

// A page must neither take long nor become long because of the documents of a task.
func TestDifferencesAreLimited(t *testing.T) {
	t.Parallel()
	began := time.Now()
	deep := func(inner string) json.RawMessage {
		return json.RawMessage(strings.Repeat(`{"a":[`, 4000) + inner + strings.Repeat("]}", 4000))
	}
	if d := Of(deep("1"), deep("2")); len(d.List) != 1 || len(d.List[0].Was) > MaxShown+100 {
		t.Errorf("deep documents differ in %d values, the first of %d bytes", len(d.List), len(d.List[0].Was))
	}
	wide := func(value int) json.RawMessage {
		return json.RawMessage("[" + strings.TrimSuffix(strings.Repeat(fmt.Sprintf("%d,", value), 300_000), ",") + "]")
	}
	if d := Of(wide(1), wide(2)); len(d.List) != Max || d.More != 300_000-Max {
		t.Errorf("wide documents differ in %d values and %d more", len(d.List), d.More)
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("the comparison takes %s", took)
	}
}

func TestShortenedTextStaysText(t *testing.T) {
	t.Parallel()
	text := Shortened(strings.Repeat("€", MaxShown))
	if strings.ToValidUTF8(text, "") != text || !strings.HasPrefix(text, strings.Repeat("€", MaxShown/3)+"… and ") {
		t.Errorf("the text is %q", text)
	}
}
