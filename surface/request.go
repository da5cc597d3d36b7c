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

// A request is a struct. A caller of the HTTP API sends its members as JSON or in the query, and a person sets them
// with flags and arguments. The tags describe each member once, for both:
//
//   - json or query is the name of the member; the flag has this name with dashes.
//   - flag is the placeholder for the value of the flag, such as NAME, or "-" for a bool. Without this tag, the member
//     has no flag.
//   - arg is the index of the argument that sets the member; "..." means all arguments.
//   - doc is the description. The help begins it with a small letter, and replaces null by none.
//   - default is the value of a missing member. enum and minimum restrict the value. maximum restricts only the API,
//     whose responses must be small. most restricts only the command line.
//   - required:"true" means that the flag must be given.
//
// If a request has a method Check, the command line calls it before it opens a store.

// Optional is a member of a request that changes a record. If the member is missing, the value stays. If it is null, or
// "none" on the command line, Value is nil and the request removes the value.
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

// MemberError is an error about a member of a request. It is an ErrInvalid.
type MemberError struct {
	Name string
	Err  error
}

// Error implements error.
func (e *MemberError) Error() string {
	return e.Name + ": " + strings.TrimPrefix(e.Err.Error(), holdfast.ErrInvalid.Error()+": ")
}

// Unwrap returns Err and ErrInvalid.
func (e *MemberError) Unwrap() []error { return []error{e.Err, holdfast.ErrInvalid} }

// duration parses the duration of the member with the given name. It returns an ErrInvalid if it is not more
// than 0, or longer than ten years.
func duration(name, text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("%w: %s %q is not a duration like 30m or 2h", holdfast.ErrInvalid, name, text)
	}
	return d, holdfast.CheckDuration(name, d)
}

// parseTarget returns the target of a URL, or of a host with or without a port. A host alone means https.
func parseTarget(text string) (string, error) {
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
