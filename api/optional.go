package api

import (
	"encoding/json"
	"reflect"

	"github.com/danielgtaylor/huma/v2"
)

// optional is a member of a request that changes something. It can be missing, and then nothing changes. If it is null,
// its value is nil.
type optional[T comparable] struct {
	given bool
	value *T
}

// UnmarshalJSON implements json.Unmarshaler.
func (o *optional[T]) UnmarshalJSON(text []byte) error {
	o.given = true
	return json.Unmarshal(text, &o.value)
}

// Schema implements huma.SchemaProvider.
func (optional[T]) Schema(r huma.Registry) *huma.Schema {
	s := huma.SchemaFromType(r, reflect.TypeFor[T]())
	s.Nullable = true
	return s
}

// or returns the value, or other if it is missing or null.
func (o optional[T]) or(other T) T {
	if o.value == nil {
		return other
	}
	return *o.value
}

// removes reports whether the member is null or has the empty value.
func (o optional[T]) removes(empty T) bool { return o.given && o.or(empty) == empty }
