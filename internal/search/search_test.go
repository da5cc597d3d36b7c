package search_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/search"
	"github.com/holdfastq/holdfast/store"
)

var now = time.Date(2030, 1, 31, 9, 0, 0, 0, time.UTC)

func TestParse(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]store.Filter{
		"":                            {},
		"  \t\n":                      {},
		"state:dead":                  {States: []holdfast.State{holdfast.Dead}},
		"state:ready,running,ready":   {States: []holdfast.State{holdfast.Ready, holdfast.Running}},
		`state:"ready, dead"`:         {States: []holdfast.State{holdfast.Ready, holdfast.Dead}},
		"type:http queue:mail":        {Type: "http", Queue: "mail"},
		"queue:mail  type:http ":      {Type: "http", Queue: "mail"},
		`"503"`:                       {Error: "503"},
		"6000":                        {IDs: []holdfast.TaskID{6000}},
		"state:dead 6000":             {States: []holdfast.State{holdfast.Dead}, IDs: []holdfast.TaskID{6000}},
		"5,6":                         {IDs: []holdfast.TaskID{5, 6}},
		"5,x":                         {Error: "5,x"},
		"0":                           {Error: "0"},
		"+5":                          {Error: "+5"},
		`"connection refused"`:        {Error: "connection refused"},
		`error:"say \"no\" \\ twice"`: {Error: `say "no" \ twice`},
		"error:a:b":                   {Error: "a:b"},
		`"a:b"`:                       {Error: "a:b"},
		"unique:ada@example.com":      {Unique: "ada@example.com"},
		`key:"tenant 7"`:              {Key: "tenant 7"},
		"attempt:3":                   {MinAttempt: 3, MaxAttempt: 3},
		"attempt:=3":                  {MinAttempt: 3, MaxAttempt: 3},
		"attempt:>3":                  {MinAttempt: 4},
		"attempt:>0":                  {MinAttempt: 1},
		"attempt:>=3":                 {MinAttempt: 3},
		"attempt:<3":                  {MaxAttempt: 2},
		"attempt:<=3":                 {MaxAttempt: 3},
		"since:2h until:30m":          {Since: now.Add(-2 * time.Hour), Until: now.Add(-30 * time.Minute)},
		"since:2030-01-31T08:00:00Z":  {Since: now.Add(-time.Hour)},
		`since:"2030-01-31 08:00:00"`: {Since: time.Date(2030, 1, 31, 8, 0, 0, 0, time.Local)},
		"group:3f9ad02c41b7e685":      {Fingerprint: "3f9ad02c41b7e685"},
		"class:http_503 status:503":   {Class: "http_503", Status: 503},
		"host:[::1]:8080":             {Host: "[::1]:8080"},
		"type:größe":                  {Type: "größe"},
		"tag:ada tag:order:7 tag:ada": {Tags: []string{"ada", "order:7"}},
		"worker:42":                   {Worker: 42},
		"group:3F9AD02C41B7E685":      {Fingerprint: "3f9ad02c41b7e685"},
		"operation:7 state:dead":      {Operation: 7, States: []holdfast.State{holdfast.Dead}},
		"batch:42 state:dead":         {Batch: 42, States: []holdfast.State{holdfast.Dead}},
		"id:42":                       {IDs: []holdfast.TaskID{42}},
		"id:=42,7":                    {IDs: []holdfast.TaskID{42, 7}},
		"id:100..200":                 {MinID: 100, MaxID: 200},
		"id:>=100":                    {MinID: 100},
		"id:>100":                     {MinID: 101},
		"id:<100":                     {MaxID: 99},
		"id:<=100":                    {MaxID: 100},
		"-id:42":                      {NotIDs: []holdfast.TaskID{42}},
		`-id:42,7 id:>=5 -id:"7, 9"`:  {MinID: 5, NotIDs: []holdfast.TaskID{42, 7, 7, 9}},
		"payload.order.id:42":         {Payload: []store.PayloadTerm{{Path: []string{"order", "id"}, Value: "42"}}},
		`payload.a:"" payload.b-1:x:y`: {Payload: []store.PayloadTerm{
			{Path: []string{"a"}, Text: true}, {Path: []string{"b-1"}, Value: "x:y"},
		}},
		`payload.items.0."a.b: \"c\"":"a b" type:http`: {Type: "http", Payload: []store.PayloadTerm{
			{Path: []string{"items", "0", `a.b: "c"`}, Value: "a b", Text: true},
		}},
	} {
		got, err := search.Parse(text, now)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v; want %+v", text, got, err, want)
		}
	}
}

// The caret in each text is the position of the error in the text without it.
func TestErrorsPointAtTheCharacter(t *testing.T) {
	t.Parallel()
	for marked, reason := range map[string]string{
		"state:dead ^typ:http":         `unknown field "typ"; use state, type, `,
		"state:^deaf":                  `unknown state "deaf"; use ready, `,
		"state:^":                      "the field state has no value",
		`type:^""`:                     "the field type has no value",
		"^:dead":                       "a field is missing before the colon",
		"type:a ^type:b":               "the field type appears twice",
		"first ^second":                "the field error appears twice",
		`error:^"open`:                 "the closing quote is missing",
		`error:"a"^b`:                  "a space is missing after the quote",
		`error:a^"b"`:                  "a value with a quote must be in quotes",
		`error:"a^\n"`:                 "a backslash must precede a quote or a backslash",
		`error:"a^\`:                   "a backslash must precede a quote or a backslash",
		"größe ^größe:1":               `unknown field "größe"`,
		"attempt:^x":                   `attempt "x" is not a number like 3`,
		"attempt:^<=0":                 "the first attempt is 1",
		"attempt:^0":                   "the first attempt is 1",
		"attempt:^<1":                  "the first attempt is 1",
		"attempt:^=>1":                 `attempt "=>1" is not a number like 3`,
		"attempt:^9999999999":          "is not a number like 3",
		"group:^3f9":                   "is not a fingerprint of 16 hexadecimal digits",
		"status:^600":                  `status "600" is not a number from 100 to 599`,
		"worker:^0":                    `worker "0" is not an id; use a number like 42`,
		"worker:^x":                    `worker "x" is not an id; use a number like 42`,
		"batch:^0":                     `batch "0" is not an id; use a number like 42`,
		"batch:^4,5":                   `batch "4,5" is not an id; use a number like 42`,
		"tag:^":                        "the field tag has no value",
		`tag:^"a b"`:                   `the tag "a b" must be 1 to 64 bytes of printable characters`,
		"tag:^a,b":                     `the tag "a,b" must be`,
		"id:^x":                        `id "x" is not an id, a list or a range`,
		"id:^0":                        "is not an id, a list or a range",
		"id:^1,,2":                     "is not an id, a list or a range",
		"id:^<1":                       "selects no tasks",
		"id:^9..3":                     "selects no tasks",
		"id:^..3":                      "selects no tasks",
		"id:^=>3":                      "is not an id, a list or a range",
		"id:1 ^id:2":                   "the field id appears twice",
		"state:dead -id:^x":            `"x" is not an id or a list of ids; use -id:42 or -id:42,43`,
		"-id:^":                        "the field -id has no value",
		"-id:^0":                       "is not an id or a list of ids",
		"-id:^1..3":                    "is not an id or a list of ids",
		"-id:^>3":                      "is not an id or a list of ids",
		"-id:^1,":                      "is not an id or a list of ids",
		"^-type:http":                  `unknown field "-type"; use state, type, `,
		"-id:1 -id:^" + ids(1000):      "a search leaves out at most 1000 ids; narrow the search",
		"^payload:1":                   "the field payload needs a path",
		"payload.^:1":                  "a key is missing",
		"payload.a.^.b:1":              "a key is missing",
		"payload.a^/b:1":               "a colon and a value are missing",
		"payload.a^":                   "a colon and a value are missing",
		"payload.a:^ type:b":           "the field payload has no value",
		`payload.^"a:1`:                "the closing quote is missing",
		`payload."a"^b:1`:              "a colon and a value are missing",
		`payload.a:"b"^c`:              "a space is missing after the quote",
		"since:^soon":                  `"soon" is not a time like `,
		"since:^-2h":                   "-2h is negative",
		"since:1h until:^2h":           "since must be before until",
		"since:1h until:^1h type:http": "since must be before until",
	} {
		text := strings.Replace(marked, "^", "", 1)
		_, err := search.Parse(text, now)
		syntax, ok := errors.AsType[*search.SyntaxError](err)
		if !ok || !errors.Is(err, holdfast.ErrInvalid) || !strings.Contains(err.Error(), reason) {
			t.Errorf("%s: %v; want %s", text, err, reason)
			continue
		}
		if want := strings.Index(marked, "^"); syntax.Offset != want {
			t.Errorf("%s: the error is at %d, want %d", text, syntax.Offset, want)
		}
	}
}

// ids returns a list of the first n ids.
func ids(n int) string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprint(i + 1)
	}
	return strings.Join(list, ",")
}

func TestAsManyExceptionsAsPossible(t *testing.T) {
	t.Parallel()
	f, err := search.Parse("state:dead -id:"+ids(1000), now)
	if err != nil || len(f.NotIDs) != 1000 || f.NotIDs[999] != 1000 {
		t.Errorf("%d exceptions, %v", len(f.NotIDs), err)
	}
}

func TestWithout(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"": "", "id:1": "", "-id:1 -id:2": "", "state:dead": "state:dead",
		"state:dead id:>3 type:http":             "state:dead type:http",
		`  error:"an -id:1 "   -id:"2, 3" tag:a`: `error:"an -id:1 " tag:a`,
		`payload.id:1 id:1 "id:1"`:               `payload.id:1 "id:1"`,
		`id:1 error:"open`:                       `id:1 error:"open`,
	} {
		if got := search.Without(text, "id", "-id"); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestTime(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Time{
		"2030-01-31":                time.Date(2030, 1, 31, 0, 0, 0, 0, time.Local),
		"2030-01-31 09:30":          time.Date(2030, 1, 31, 9, 30, 0, 0, time.Local),
		"2030-01-31 09:30:15":       time.Date(2030, 1, 31, 9, 30, 15, 0, time.Local),
		"2030-01-31T09:30":          time.Date(2030, 1, 31, 9, 30, 0, 0, time.Local),
		"2030-01-31T09:30:15":       time.Date(2030, 1, 31, 9, 30, 15, 0, time.Local),
		"2030-01-31T09:30:15Z":      time.Date(2030, 1, 31, 9, 30, 15, 0, time.UTC),
		"2030-01-31T09:30:15+01:00": time.Date(2030, 1, 31, 8, 30, 15, 0, time.UTC),
	} {
		if got, err := search.Time(text); err != nil || !got.Equal(want) {
			t.Errorf("%s: %s, %v; want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"", "soon", "2030-02-31", "31.01.2030", "09:30", "0001-01-01T00:00:00Z", "0001-01-01"} {
		if got, err := search.Time(text); err == nil {
			t.Errorf("%q: %s", text, got)
		}
	}
}

func TestLocalTimes(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ zone, wall, want string }{
		{"Europe/Berlin", "2030-01-31 09:00", "2030-01-31T08:00:00Z"},
		{"Europe/Berlin", "2026-03-29 01:59", "2026-03-29T00:59:00Z"},
		{"Europe/Berlin", "2026-03-29 02:00", "2026-03-29T01:00:00Z"}, // the gap
		{"Europe/Berlin", "2026-03-29 02:30", "2026-03-29T01:30:00Z"},
		{"Europe/Berlin", "2026-03-29 03:00", "2026-03-29T01:00:00Z"},
		{"Europe/Berlin", "2026-03-29 12:00", "2026-03-29T10:00:00Z"},
		{"Europe/Berlin", "2026-10-25 02:30", "2026-10-25T00:30:00Z"}, // the first of two
		{"Europe/Berlin", "2026-10-25 12:00", "2026-10-25T11:00:00Z"},
		{"America/New_York", "2026-03-08 02:30", "2026-03-08T07:30:00Z"},
		{"America/New_York", "2026-11-01 01:30", "2026-11-01T05:30:00Z"},
		{"America/New_York", "2026-11-01 02:30", "2026-11-01T07:30:00Z"},
		{"America/Sao_Paulo", "2018-11-04 00:00", "2018-11-04T03:00:00Z"}, // the day began at 01:00
		{"Australia/Lord_Howe", "2026-10-04 02:15", "2026-10-03T15:45:00Z"},
		{"Pacific/Apia", "2011-12-30 12:00", "2011-12-30T22:00:00Z"}, // the day was left out
		{"UTC", "2026-03-29 02:30", "2026-03-29T02:30:00Z"},
	} {
		zone, err := time.LoadLocation(test.zone)
		if err != nil {
			t.Fatal(err)
		}
		wall, err := time.Parse("2006-01-02 15:04", test.wall)
		if err != nil {
			t.Fatal(err)
		}
		if got := search.Local(wall, zone).UTC().Format(time.RFC3339); got != test.want {
			t.Errorf("%s in %s: %s, want %s", test.wall, test.zone, got, test.want)
		}
	}
}

func TestPast(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Time{
		"2h":                   now.Add(-2 * time.Hour),
		"0s":                   now,
		"2030-01-31T08:00:00Z": now.Add(-time.Hour),
	} {
		if got, err := search.Past(text, now); err != nil || !got.Equal(want) {
			t.Errorf("%s: %s, %v; want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"-2h", "yesterday", ""} {
		if got, err := search.Past(text, now); err == nil {
			t.Errorf("%q: %s", text, got)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{"state:dead type:http", `error:"a \" b" since:2h`, "attempt:>=3", "größe", `"`, `a:"\`,
		"tag:a tag:b", "id:1,2", "id:>=7", "-id:1,2 -id:3", "state:dead -id:", `payload.a."b c".0:"d e"`, "payload.:", `payload."`} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		filter, err := search.Parse(text, now)
		if err == nil {
			some := filter
			some.IDs, some.MinID, some.MaxID, some.NotIDs = nil, 0, 0, nil
			rest := search.Without(text, "id", "-id")
			if got, err := search.Parse(rest, now); err != nil || !reflect.DeepEqual(got, some) {
				t.Errorf("without ids, %q is %q: %+v, %v", text, rest, got, err)
			}
			if got, err := search.Parse(rest+" -id:7", now); err != nil || !slices.Equal(got.NotIDs, []holdfast.TaskID{7}) {
				t.Errorf("%q with an exception: %+v, %v", rest, got, err)
			}
			again, err := search.Parse("  "+text+" ", now)
			if err != nil || !reflect.DeepEqual(filter, again) {
				t.Errorf("with spaces around it: %+v, %v", again, err)
			}
			return
		}
		syntax, ok := errors.AsType[*search.SyntaxError](err)
		if !ok || syntax.Offset < 0 || syntax.Offset > len(text) || !reflect.DeepEqual(filter, store.Filter{}) {
			t.Errorf("%+v, %#v", filter, err)
		}
	})
}
