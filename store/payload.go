package store

import (
	"bytes"
	"encoding/json"
	"math/big"
	"regexp"
	"slices"
	"strconv"
)

// number matches the JSON numbers that are compared by value. The comparison of other numbers could take long, so they
// are compared as text.
var number = regexp.MustCompile(`^-?[0-9]{1,40}(\.[0-9]{1,40})?([eE][-+]?[0-9]{1,3})?$`)

// Match reports whether a payload has the value. It is false if the payload is not valid JSON.
func (p *PayloadTerm) Match(payload []byte) bool {
	at := json.RawMessage(payload)
	for _, step := range p.Path {
		if at = inner(at, step); at == nil {
			return false
		}
	}
	var value any
	decoder := json.NewDecoder(bytes.NewReader(at))
	decoder.UseNumber()
	if decoder.Decode(&value) != nil {
		return false
	}
	switch value := value.(type) {
	case string:
		return value == p.Value
	case json.Number:
		return !p.Text && sameNumber(value.String(), p.Value)
	case bool:
		return !p.Text && strconv.FormatBool(value) == p.Value
	case nil:
		return !p.Text && p.Value == "null"
	}
	return false
}

// inner returns the value at a key or an index, or nil if there is none. A negative index counts from the end.
func inner(in json.RawMessage, step string) json.RawMessage {
	switch in = bytes.TrimSpace(in); {
	case bytes.HasPrefix(in, []byte("{")):
		var object map[string]json.RawMessage
		if json.Unmarshal(in, &object) == nil {
			return object[step]
		}
	case bytes.HasPrefix(in, []byte("[")):
		var array []json.RawMessage
		i, err := strconv.Atoi(step)
		if err != nil || json.Unmarshal(in, &array) != nil {
			return nil
		}
		if i < 0 {
			i += len(array)
		}
		if i >= 0 && i < len(array) {
			return array[i]
		}
	}
	return nil
}

// Number returns the value if it is a number that is compared by value, and "" otherwise.
func (p *PayloadTerm) Number() string {
	if p.Text || !number.MatchString(p.Value) {
		return ""
	}
	return p.Value
}

func sameNumber(a, b string) bool {
	if !number.MatchString(a) || !number.MatchString(b) {
		return a == b
	}
	x, _ := new(big.Rat).SetString(a)
	y, _ := new(big.Rat).SetString(b)
	return x.Cmp(y) == 0
}

// MatchPayload reports whether a payload matches all terms.
func MatchPayload(terms []PayloadTerm, payload []byte) bool {
	return !slices.ContainsFunc(terms, func(p PayloadTerm) bool { return !p.Match(payload) })
}
