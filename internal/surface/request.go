package surface

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/holdfastq/holdfast"
)

// A request is a struct whose members a caller of the HTTP API sends as JSON or in the query, and whose members a
// person gives on the command line as flags. Its tags describe each member once, for both:
//
//   - json or query is the name of the member; the flag has the same name with dashes.
//   - option is the name of the flag, if it is not that of the member.
//   - flag is the placeholder for the value of the flag, such as NAME, and "-" for a bool. Without it, there is no
//     flag.
//   - arg is the index of the argument of the command that has the value, if it has no flag; "..." means all arguments.
//   - doc is the description. The help begins it with a small letter, and has none instead of null.
//   - enum, default and minimum restrict the value; maximum restricts the API only, whose responses must be small, and
//     most the command line only.
//   - required:"true" means that the flag must be given.
//
// A request with a method Check is checked before the command line opens a store.

// Optional is a member of a request that changes something. If it is missing, nothing changes. If it is null, which is
// "none" on the command line, Value is nil, and what was set before is removed.
type Optional[T comparable] struct {
	Given bool
	Value *T
}

// UnmarshalJSON implements json.Unmarshaler.
func (o *Optional[T]) UnmarshalJSON(text []byte) error {
	o.Given = true
	return json.Unmarshal(text, &o.Value)
}

// Schema implements huma.SchemaProvider.
func (Optional[T]) Schema(r huma.Registry) *huma.Schema {
	s := huma.SchemaFromType(r, reflect.TypeFor[T]())
	s.Nullable = true
	return s
}

// Or returns the value, or other if it is missing or null.
func (o Optional[T]) Or(other T) T {
	if o.Value == nil {
		return other
	}
	return *o.Value
}

// Removes reports whether the member is null or has the empty value.
func (o Optional[T]) Removes(empty T) bool { return o.Given && o.Or(empty) == empty }

// MemberError is an error about the member of a request with the name. It is an ErrInvalid.
type MemberError struct {
	Name string
	Err  error
}

// Error implements error.
func (e *MemberError) Error() string { return e.Name + ": " + e.Err.Error() }

// Unwrap returns what is wrong.
func (e *MemberError) Unwrap() []error { return []error{e.Err, holdfast.ErrInvalid} }

// duration parses the duration of the member with the given name. It returns an ErrInvalid if it is not more than 0.
func duration(name, text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("%w: %s %q is not a duration like 30m or 2h", holdfast.ErrInvalid, name, text)
	}
	return d, nil
}

// ParseTarget returns the target that a URL, or a host with or without a port, names. A host alone means https.
func ParseTarget(text string) (string, error) {
	url := text
	if !strings.Contains(text, "://") {
		url = "https://" + text
	}
	target, ok := holdfast.ParseTarget(url)
	if !ok {
		return "", fmt.Errorf("%w: %.120q is not a target; a target is a scheme, a host and a port, such as https://api.example.com:443, or a URL there; "+
			"a host has at most %d bytes and only ASCII characters: write bücher.example as xn--bcher-kva.example", holdfast.ErrInvalid, text, holdfast.MaxHostLength)
	}
	return target, nil
}
