// Package payload makes JSON Schemas (draft 2020-12) of the payloads that a Go type accepts, and validates payloads
// against them. A schema accepts every payload that encoding/json decodes into the type without an error. It also
// accepts some payloads that encoding/json refuses, because a schema cannot express every check.
//
// The package supports only the keywords that Go types need, and ignores all others. A library for JSON Schema would
// increase the size of every program that enqueues tasks; see ADR 0039.
package payload

import (
	"encoding"
	"encoding/json"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// draft is the dialect of the schemas.
const draft = "https://json-schema.org/draft/2020-12/schema"

// maxNodes limits the size of a schema. The schema accepts any value for the types after the limit.
const maxNodes = 1000

// schema is a JSON Schema. Nil accepts every value.
type schema struct {
	Dialect              string             `json:"$schema,omitempty"`
	Types                []string           `json:"type,omitempty"`
	Properties           map[string]*schema `json:"properties,omitempty"`
	AdditionalProperties *schema            `json:"additionalProperties,omitempty"`
	Items                *schema            `json:"items,omitempty"`
	Minimum              json.Number        `json:"minimum,omitempty"`
	Maximum              json.Number        `json:"maximum,omitempty"`
}

// Schema returns the JSON Schema of the payloads that encoding/json decodes into a value of type t. It returns nil if
// every payload may fit, as for json.RawMessage and other types that decode themselves.
func Schema(t reflect.Type) json.RawMessage {
	d := description{inside: make(map[reflect.Type]bool)}
	s := d.of(t)
	if s == nil {
		return nil
	}
	s.Dialect = draft
	text, err := json.Marshal(s)
	if err != nil { // a schema has only strings, numbers and other schemas
		return nil
	}
	return text
}

type description struct {
	inside map[reflect.Type]bool // the types that contain the present one
	nodes  int
}

var (
	numberType = reflect.TypeFor[json.Number]()
	timeType   = reflect.TypeFor[time.Time]()
	// codecs are the interfaces of types that encode or decode themselves.
	codecs = []reflect.Type{
		reflect.TypeFor[json.Unmarshaler](), reflect.TypeFor[json.Marshaler](),
		reflect.TypeFor[encoding.TextUnmarshaler](), reflect.TypeFor[encoding.TextMarshaler](),
	}
)

// orNull returns a schema that accepts the types and null. Decoding null leaves most Go values unchanged.
func orNull(types ...string) *schema { return &schema{Types: append(types, "null")} }

// of returns the schema of a type, or nil if it accepts every value. A recursive type is described only once.
func (d *description) of(t reflect.Type) *schema {
	for t.Kind() == reflect.Pointer && t.Name() == "" {
		t = t.Elem()
	}
	if d.nodes++; d.nodes > maxNodes || d.inside[t] {
		return nil
	}
	switch t {
	case numberType:
		return orNull("number", "string")
	case timeType:
		return orNull("string")
	}
	for _, codec := range codecs {
		if t.Implements(codec) || reflect.PointerTo(t).Implements(codec) {
			return nil
		}
	}
	d.inside[t] = true
	defer delete(d.inside, t)
	switch t.Kind() {
	case reflect.Bool:
		return orNull("boolean")
	case reflect.String:
		return orNull("string")
	case reflect.Float32, reflect.Float64:
		return orNull("number")
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		s := orNull("integer")
		s.Minimum = json.Number(strconv.FormatInt(math.MinInt64>>(64-t.Bits()), 10))
		s.Maximum = json.Number(strconv.FormatInt(math.MaxInt64>>(64-t.Bits()), 10))
		return s
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		s := orNull("integer")
		s.Minimum, s.Maximum = "0", json.Number(strconv.FormatUint(math.MaxUint64>>(64-t.Bits()), 10))
		return s
	case reflect.Slice:
		s := orNull("array")
		if t.Elem().Kind() == reflect.Uint8 { // base64
			s = orNull("array", "string")
		}
		s.Items = d.of(t.Elem())
		return s
	case reflect.Array: // encoding/json skips further elements without checking them
		return orNull("array")
	case reflect.Map:
		s := orNull("object")
		s.AdditionalProperties = d.of(t.Elem())
		return s
	case reflect.Struct:
		s := orNull("object")
		s.Properties = make(map[string]*schema)
		d.fields(t, s.Properties, nil)
		for name, property := range s.Properties {
			if property == nil {
				delete(s.Properties, name)
			}
		}
		return s
	}
	return nil
}

// fields adds the fields of a struct to properties. around has the structs that embed t. If several fields share a
// name, its schema is nil: the rules by which encoding/json selects a field are not repeated here.
func (d *description) fields(t reflect.Type, properties map[string]*schema, around []reflect.Type) {
	around = append(slices.Clip(around), t)
	for i := range t.NumField() {
		f := t.Field(i)
		tag := f.Tag.Get("json")
		name, options, _ := strings.Cut(tag, ",")
		if !validName(name) {
			name = ""
		}
		if f.Anonymous {
			embedded := f.Type
			if embedded.Kind() == reflect.Pointer {
				embedded = embedded.Elem()
			}
			if embedded.Kind() == reflect.Struct && tag != "-" && name == "" {
				if !slices.Contains(around, embedded) {
					d.fields(embedded, properties, around)
				}
				continue
			}
		}
		if !f.IsExported() || tag == "-" {
			continue
		}
		if name == "" {
			name = f.Name
		}
		_, taken := properties[name]
		properties[name] = nil
		if !taken && !strings.Contains(options, "string") { // with the option string, a JSON string contains the value
			properties[name] = d.of(f.Type)
		}
	}
}

// validName reports whether encoding/json accepts a name in a tag.
func validName(name string) bool {
	return !strings.ContainsFunc(name, func(c rune) bool {
		return !strings.ContainsRune("!#$%&()*+-./:;<=>?@[]^_{|}~ ", c) && !unicode.IsLetter(c) && !unicode.IsDigit(c)
	})
}
