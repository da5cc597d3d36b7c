package payload

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"
)

// Check validates a payload against a schema from Schema. The error contains the JSON Pointer of the first member that
// does not fit, and what the schema expects: "/to: expected string or null, got number".
func Check(schemaText, payload json.RawMessage) error {
	found, err := Misfits(schemaText, payload, 1)
	if err != nil || len(found) == 0 {
		return err
	}
	return found[0]
}

// Misfit is a value of a payload that does not fit a schema.
type Misfit struct {
	Path   string // a JSON Pointer; "" for the whole payload
	Reason string
}

// Error implements error.
func (m Misfit) Error() string {
	if m.Path == "" {
		return m.Reason
	}
	return fmt.Sprintf("%.*s: %s", maxPath, m.Path, m.Reason)
}

// Misfits returns the values of a payload that do not fit a schema from Schema, at most limit of them. Members of an
// object are in the order of their names. It returns an error if the schema or the payload cannot be read.
func Misfits(schemaText, payload json.RawMessage, limit int) ([]Misfit, error) {
	var s schema
	if err := json.Unmarshal(schemaText, &s); err != nil {
		return nil, fmt.Errorf("read the schema: %w", err)
	}
	decoder := json.NewDecoder(bytes.NewReader(payload))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return nil, err
	}
	c := check{limit: limit}
	c.value(&s, "", value)
	return c.found, nil
}

// maxPath is the maximum length of a path in an error, in bytes.
const maxPath = 200

// check collects the values that do not fit.
type check struct {
	found []Misfit
	limit int
}

func (c *check) value(s *schema, path string, value any) {
	if s == nil || len(c.found) >= c.limit {
		return
	}
	if err := s.checkValue(value); err != nil {
		c.found = append(c.found, Misfit{path, err.Error()})
		return
	}
	switch value := value.(type) {
	case []any:
		for i := 0; i < len(value) && len(c.found) < c.limit; i++ {
			c.value(s.Items, fmt.Sprintf("%s/%d", path, i), value[i])
		}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(value)) {
			property, ok := s.Properties[name]
			if !ok {
				property = s.AdditionalProperties
			}
			c.value(property, path+"/"+strings.NewReplacer("~", "~0", "/", "~1").Replace(name), value[name])
		}
	}
}

// checkValue checks the type of a value, and the bounds of an integer.
func (s *schema) checkValue(value any) error {
	got := typeOf(value)
	number, isNumber := value.(json.Number)
	integer := isNumber && !strings.ContainsAny(number.String(), ".eE") // encoding/json refuses 1.0 for an integer
	if len(s.Types) > 0 && !slices.Contains(s.Types, got) && !(integer && slices.Contains(s.Types, "integer")) {
		return fmt.Errorf("expected %s, got %s", strings.Join(s.Types, " or "), got)
	}
	if !integer {
		return nil
	}
	switch {
	case s.Minimum != "" && compare(number, s.Minimum) < 0:
		return fmt.Errorf("%.30s is less than %s", number, s.Minimum)
	case s.Maximum != "" && compare(number, s.Maximum) > 0:
		return fmt.Errorf("%.30s is more than %s", number, s.Maximum)
	}
	return nil
}

// typeOf returns the name of the JSON type of a value.
func typeOf(value any) string {
	switch value.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case string:
		return "string"
	case []any:
		return "array"
	case map[string]any:
		return "object"
	}
	return "number"
}

func compare(a, b json.Number) int {
	x, okX := new(big.Int).SetString(a.String(), 10)
	y, okY := new(big.Int).SetString(b.String(), 10)
	if !okX || !okY { // the bound is not an integer
		return 0
	}
	return x.Cmp(y)
}
