//lint:file-ignore SA5008 some tags are odd on purpose

package payload_test

import (
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"net/netip"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/quick"
	"time"

	"pgregory.net/rapid"

	"github.com/holdfastq/holdfast/internal/payload"
	"github.com/holdfastq/holdfast/workshop/slow"
)

type (
	order struct {
		ID    int64  `json:"id"`
		To    string `json:"to,omitempty"`
		Lines []line `json:"lines"`
		Notes map[string]*line
		Local int `json:"-"`
		Dash  int `json:"-,"` //nolint:staticcheck // the name is -
	}
	line struct {
		SKU      string  `json:"sku"`
		Price    float64 `json:"price"`
		Quantity uint8   `json:"quantity"`
		Gift     *bool   `json:"gift"`
	}

	node struct {
		Name string            `json:"name"`
		Next *node             `json:"next"`
		Kids map[string][]node `json:"kids"`
	}
	pointerLoop  *pointerLoop
	sliceLoop    []sliceLoop
	embedsItself struct {
		//lint:ignore U1000 for its schema
		*embedsItself        //nolint:unused // for its schema
		Name          string `json:"name"`
	}

	base struct {
		ID   int    `json:"id"`
		Name string `json:"name"`
	}
	other struct {
		Name int `json:"name"`
		Size int `json:"size"`
	}
	embeds struct {
		base
		*other
		Extra bool `json:"extra"`
	}
	hides struct {
		base
		ID string `json:"id"`

		private int
	}
	named struct {
		base `json:"base"`
		Base
	}
	Base struct{ Deep string }

	own     struct{ N int }
	ownText struct{ N int }
	writes  struct{ N int }
	kinds   struct {
		Any     any             `json:"any"`
		Raw     json.RawMessage `json:"raw"`
		Number  json.Number     `json:"number"`
		Bytes   []byte          `json:"bytes"`
		Array   [2]int          `json:"array"`
		Quoted  int             `json:"quoted,string"`
		QuotedP *bool           `json:"quoted_p,string"`
		Time    time.Time       `json:"time"`
		Address netip.Addr      `json:"address"`
		Big     *big.Int        `json:"big"`
		Keys    map[int]string  `json:"keys"`
		Small   int8            `json:"small"`
		Large   uint64          `json:"large"`
		Wait    time.Duration   `json:"wait"`
		Bad     int             `json:"a\"b"` //nolint:staticcheck // a name that encoding/json ignores
		Quote   int             `json:"it's"` //nolint:staticcheck // a name that encoding/json ignores
		Umlaut  float32         `json:"größe"`
	}
)

func (o *own) UnmarshalJSON(text []byte) error     { return json.Unmarshal(text, &o.N) }
func (o *ownText) UnmarshalText(text []byte) error { return json.Unmarshal(text, &o.N) }
func (writes) MarshalJSON() ([]byte, error)        { return []byte(`"w"`), nil }

// check validates text by the schema of type T. It returns "" if the text is valid.
func check[T any](t testing.TB, text string) string {
	t.Helper()
	return checkType(t, reflect.TypeFor[T](), text)
}

// schemas has the schemas by type.
var schemas sync.Map

func checkType(t testing.TB, of reflect.Type, text string) string {
	t.Helper()
	schema, ok := schemas.Load(of)
	if !ok {
		schema, _ = schemas.LoadOrStore(of, payload.Schema(of))
	}
	if schema.(json.RawMessage) == nil {
		return ""
	}
	if err := payload.Check(schema.(json.RawMessage), json.RawMessage(text)); err != nil {
		return err.Error()
	}
	return ""
}

// Each payload has the error that an edit reports, or none.
func TestWhatATypeAccepts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		check func(testing.TB, string) string
		text  string
		want  string // "" means that the payload is valid
	}{
		{check[order], `{"id":1,"to":"a","lines":[{"sku":"x","price":1.5,"quantity":2,"gift":true}],"Notes":{"a":null}}`, ""},
		{check[order], `{}`, ""},
		{check[order], `null`, ""},
		{check[order], `{"id":null,"lines":null,"unknown":[1],"TO":5,"Local":"x"}`, ""},
		{check[order], `[]`, "expected object or null, got array"},
		{check[order], `{"to":5}`, "/to: expected string or null, got number"},
		{check[order], `{"id":"5"}`, "/id: expected integer or null, got string"},
		{check[order], `{"id":1.5}`, "/id: expected integer or null, got number"},
		{check[order], `{"id":1e2}`, "/id: expected integer or null, got number"},
		{check[order], `{"id":9223372036854775807}`, ""},
		{check[order], `{"id":9223372036854775808}`, "/id: 9223372036854775808 is more than 9223372036854775807"},
		{check[order], `{"id":-9223372036854775808}`, ""},
		{check[order], `{"id":-9223372036854775809}`, "/id: -9223372036854775809 is less than -9223372036854775808"},
		{check[order], `{"lines":[{},{"price":"1"}]}`, "/lines/1/price: expected number or null, got string"},
		{check[order], `{"lines":[{"quantity":256}]}`, "/lines/0/quantity: 256 is more than 255"},
		{check[order], `{"lines":[{"quantity":-1}]}`, "/lines/0/quantity: -1 is less than 0"},
		{check[order], `{"Notes":{"a/b~c":{"gift":1}}}`, "/Notes/a~1b~0c/gift: expected boolean or null, got number"},
		{check[order], `{"-":"x"}`, "/-: expected integer or null, got string"},
		{check[order], `{"Notes":{"` + strings.Repeat("x", 300) + `":1}}`, "/Notes/" + strings.Repeat("x", 193) + ": expected object or null, got number"},

		{check[string], `"x"`, ""},
		{check[string], `{"a":1}`, "expected string or null, got object"},
		{check[[]string], `["a",1]`, "/1: expected string or null, got number"},
		{check[*int32], `2147483648`, "2147483648 is more than 2147483647"},
		{check[map[string]bool], `{"a":true,"b":0}`, "/b: expected boolean or null, got number"},
		{check[bool], `0`, "expected boolean or null, got number"},

		{check[json.RawMessage], `{"a":1}`, ""},
		{check[any], `{"a":1}`, ""},
		{check[own], `[1]`, ""},
		{check[ownText], `[1]`, ""},
		{check[writes], `[1]`, ""},
		{check[struct{ own }], `[1]`, ""},
		{check[struct{ F func() }], `{"F":null}`, ""},
		{check[time.Time], `5`, "expected string or null, got number"},

		{check[node], `{"next":{"next":{"name":7}},"kids":{"a":[{"name":8}]}}`, ""},
		{check[node], `{"name":7}`, "/name: expected string or null, got number"},
		{check[pointerLoop], `1`, ""},
		{check[sliceLoop], `[[1]]`, ""},
		{check[sliceLoop], `{}`, "expected array or null, got object"},
		{check[embedsItself], `{"name":1}`, "/name: expected string or null, got number"},

		{check[embeds], `{"name":[]}`, ""}, // two fields have that name, and encoding/json uses neither
		{check[embeds], `{"id":"x"}`, "/id: expected integer or null, got string"},
		{check[embeds], `{"size":"x"}`, "/size: expected integer or null, got string"},
		{check[embeds], `{"extra":1}`, "/extra: expected boolean or null, got number"},
		{check[hides], `{"id":"x","name":"y","private":"z"}`, ""},
		{check[named], `{"base":{"id":"x"}}`, ""}, // an embedded field that is not exported
		{check[named], `{"Deep":5}`, "/Deep: expected string or null, got number"},

		{check[kinds], `{"any":[1],"raw":{"a":2},"number":1e999,"bytes":"AQI=","array":[1],"quoted":"5","quoted_p":"true","keys":{"1":"a"},"a\"b":"x"}`, ""},
		{check[kinds], `{"number":"12","bytes":[1,2],"array":[1,2,"skipped"],"address":"::1","big":12345678901234567890,"wait":5}`, ""},
		{check[kinds], `{"number":true}`, "/number: expected number or string or null, got boolean"},
		{check[kinds], `{"bytes":[256]}`, "/bytes/0: 256 is more than 255"},
		{check[kinds], `{"bytes":{}}`, "/bytes: expected array or string or null, got object"},
		{check[kinds], `{"array":"x"}`, "/array: expected array or null, got string"},
		{check[kinds], `{"keys":{"1":2}}`, "/keys/1: expected string or null, got number"},
		{check[kinds], `{"small":-129}`, "/small: -129 is less than -128"},
		{check[kinds], `{"large":18446744073709551616}`, "/large: 18446744073709551616 is more than 18446744073709551615"},
		{check[kinds], `{"large":1` + strings.Repeat("0", 1000) + `}`, "/large: 1" + strings.Repeat("0", 29) + " is more than 18446744073709551615"},
		{check[kinds], `{"wait":"5s"}`, "/wait: expected integer or null, got string"},
		{check[kinds], `{"größe":"x"}`, "/größe: expected number or null, got string"},
		{check[kinds], `{"it's":"x","Quote":5}`, ""}, // encoding/json does not use this name
		{check[kinds], `{"Quote":"x"}`, "/Quote: expected integer or null, got string"},
	} {
		if got := c.check(t, c.text); got != c.want {
			t.Errorf("%.100s: %q, want %q", c.text, got, c.want)
		}
	}
}

// A schema is a JSON Schema of the draft that it names. It is the same for every registration of a type.
func TestTheSchemaOfAType(t *testing.T) {
	t.Parallel()
	const want = `{"$schema":"https://json-schema.org/draft/2020-12/schema","type":["object","null"],"properties":{` +
		`"gift":{"type":["boolean","null"]},"price":{"type":["number","null"]},` +
		`"quantity":{"type":["integer","null"],"minimum":0,"maximum":255},"sku":{"type":["string","null"]}}}`
	for range 3 {
		if got := payload.Schema(reflect.TypeFor[line]()); string(got) != want {
			t.Fatalf("%s, want %s", got, want)
		}
	}
	if got := payload.Schema(reflect.TypeFor[json.RawMessage]()); got != nil {
		t.Errorf("the schema of raw bytes is %s", got)
	}
}

// A type with very many fields gets a schema of limited size.
func TestAHugeTypeIsDescribedInPart(t *testing.T) {
	t.Parallel()
	of := reflect.TypeFor[int]()
	for range 7 { // 4^7 fields
		fields := make([]reflect.StructField, 4)
		for i := range fields {
			fields[i] = reflect.StructField{Name: fmt.Sprintf("F%d", i), Type: of}
		}
		of = reflect.StructOf(fields)
	}
	schema := payload.Schema(of)
	if len(schema) == 0 || len(schema) > 100_000 {
		t.Errorf("the schema has %d bytes", len(schema))
	}
	if err := payload.Check(schema, json.RawMessage(`{"F0":1}`)); err == nil {
		t.Error("the described part refuses nothing")
	}
}

// types are the types that the property tests below use.
var types = []reflect.Type{
	reflect.TypeFor[order](), reflect.TypeFor[line](), reflect.TypeFor[node](), reflect.TypeFor[sliceLoop](), reflect.TypeFor[embedsItself](),
	reflect.TypeFor[embeds](), reflect.TypeFor[hides](), reflect.TypeFor[named](), reflect.TypeFor[kinds](), reflect.TypeFor[own](),
	reflect.TypeFor[ownText](), reflect.TypeFor[[]byte](), reflect.TypeFor[map[string][]line](), reflect.TypeFor[[2]line](), reflect.TypeFor[*uint16](),
	reflect.TypeFor[json.Number](), reflect.TypeFor[struct{ time.Time }](), reflect.TypeFor[struct {
		order
		Lines string
	}](),
}

// TestAMarshaledValueIsValid checks that a schema accepts each value of its type in the form that a program enqueues.
func TestAMarshaledValueIsValid(t *testing.T) {
	t.Parallel()
	agree := func(value any) bool {
		text, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		if refused := checkType(t, reflect.TypeOf(value), string(text)); refused != "" {
			t.Errorf("%T %s: %s", value, text, refused)
		}
		return !t.Failed()
	}
	for _, property := range []any{
		func(v order) bool { return agree(v) }, func(v line) bool { return agree(v) }, func(v []byte) bool { return agree(v) }, func(v map[string][]line) bool { return agree(v) },
		func(v [2]line) bool { return agree(v) }, func(v map[int8]float64) bool { return agree(v) },
		func(v struct {
			Quoted int    `json:",string"`
			U      uint64 `json:"u"`
			I      int64  `json:"i"`
			Maps   []map[uint16]*string
			Bytes  [][]byte `json:"bytes"`
		}) bool {
			return agree(v)
		},
	} {
		if err := quick.Check(property, &quick.Config{MaxCount: slow.Pick(30, 300)}); err != nil {
			t.Error(err)
		}
	}
	agree(embeds{base{1, "a"}, &other{2, 3}, true})
	agree(hides{base{1, "a"}, "b", 2})
	agree(node{Name: "a", Next: &node{Kids: map[string][]node{"b": {{}}}}})
	agree(kinds{Time: time.Now(), Address: netip.MustParseAddr("::1"), Big: big.NewInt(5), Large: math.MaxUint64, Small: math.MinInt8, Number: "1e5", Umlaut: 1.5})
}

func TestMisfitsHaveEachPath(t *testing.T) {
	t.Parallel()
	text := json.RawMessage(`{"id":"a","to":5,"lines":[{"sku":1},{"sku":"x","quantity":999}],"Notes":{"a/b~c":[]}}`)
	var got []string
	found, err := payload.Misfits(payload.Schema(reflect.TypeFor[order]()), text, 10)
	for _, misfit := range found {
		got = append(got, misfit.Path)
	}
	if want := "/Notes/a~1b~0c /id /lines/0/sku /lines/1/quantity /to"; err != nil || strings.Join(got, " ") != want {
		t.Errorf("the paths are %q, %v; want %s", got, err, want)
	}
	if found, _ := payload.Misfits(payload.Schema(reflect.TypeFor[order]()), text, 2); len(found) != 2 {
		t.Errorf("found %v; want 2", found)
	}
}

// names are the members of the types, in all spellings that encoding/json accepts, and some other names.
var names = []string{
	"id", "ID", "to", "lines", "Notes", "-", "sku", "price", "quantity", "gift", "name", "Name", "next", "kids", "size", "extra", "base", "Base", "Deep",
	"any", "raw", "number", "bytes", "array", "quoted", "quoted_p", "time", "address", "big", "keys", "small", "large", "func", "wait", "F", "a", "a\"b", "it's",
	"Quote", "Bad", "größe", "Lines", "N", "Time", "unknown", "1", "2",
}

// scalars are JSON texts at the limits of types.
var scalars = []string{
	`null`, `true`, `false`, `0`, `-0`, `1`, `1.0`, `1e2`, `-1`, `127`, `128`, `-128`, `-129`, `255`, `256`, `65536`, `2147483648`, `9223372036854775807`,
	`9223372036854775808`, `-9223372036854775809`, `18446744073709551615`, `18446744073709551616`, `1e400`, `""`, `"x"`, `"AQI="`, `"5"`, `"true"`, `"1e5"`,
	`"2030-01-31T09:00:00Z"`, `"::1"`,
}

func jsonText(t *rapid.T, depth int) string {
	kind := rapid.IntRange(0, 3).Draw(t, "kind")
	if depth == 0 || kind == 0 {
		return rapid.SampledFrom(scalars).Draw(t, "scalar")
	}
	parts := make([]string, rapid.IntRange(0, 4).Draw(t, "size"))
	for i := range parts {
		parts[i] = jsonText(t, depth-1)
		if kind != 1 {
			name, _ := json.Marshal(rapid.SampledFrom(names).Draw(t, "name"))
			parts[i] = string(name) + ":" + parts[i]
		}
	}
	if kind == 1 {
		return "[" + strings.Join(parts, ",") + "]"
	}
	return "{" + strings.Join(parts, ",") + "}"
}

// accepted checks one payload against every type: the schema must accept each payload that encoding/json decodes.
func accepted(t testing.TB, text []byte) {
	t.Helper()
	if !json.Valid(text) {
		return
	}
	for _, of := range types {
		value := reflect.New(of)
		if json.Unmarshal(text, value.Interface()) != nil {
			continue
		}
		if refused := checkType(t, of, string(text)); refused != "" {
			t.Fatalf("%s accepts %s, but the schema refuses it: %s", of, text, refused)
		}
	}
}

// TestASchemaRefusesNothingThatDecodes tries random payloads.
func TestASchemaRefusesNothingThatDecodes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		text := jsonText(r, 4)
		accepted(t, []byte(text))
	})
}

func FuzzAccepted(f *testing.F) {
	for _, scalar := range scalars {
		for _, name := range names {
			f.Add(fmt.Appendf(nil, `{%q:%s}`, name, scalar))
		}
		f.Add(fmt.Appendf(nil, `[%s,{"id":%s}]`, scalar, scalar))
	}
	f.Fuzz(func(t *testing.T, text []byte) { accepted(t, text) })
}
