package surface

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"
)

// ReadObject decodes a JSON object into a struct or a map. It refuses invalid UTF-8, data after the object, unknown
// members, members that differ from known members only in case, and members that are given twice. encoding/json would
// silently ignore or replace these. name is the subject of an error, such as "the body". The error is for the author of
// the JSON, and names the member.
func ReadObject(text []byte, name string, into any) error {
	if !utf8.Valid(text) {
		return errors.New("not valid UTF-8")
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return explainJSON(err, name)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return errors.New("unexpected data after the JSON object")
	}
	if bytes.TrimLeft(text, " \t\r\n")[0] != '{' { // null decodes without an error
		return errors.New("not a JSON object")
	}
	return checkMembers(text, memberNames(into))
}

// memberNames returns the names of the members of a struct, and nil for a map.
func memberNames(into any) []string {
	form := reflect.TypeOf(into).Elem()
	if form.Kind() != reflect.Struct {
		return nil
	}
	names := []string{}
	for _, field := range reflect.VisibleFields(form) {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		names = append(names, name)
	}
	return names
}

// checkMembers checks the names of the members of an object. known is nil if every name is allowed.
func checkMembers(object []byte, known []string) error {
	decoder := json.NewDecoder(bytes.NewReader(object))
	if _, err := decoder.Token(); err != nil {
		return err
	}
	seen := make(map[string]bool)
	for decoder.More() {
		key, err := decoder.Token()
		if err != nil {
			return err
		}
		name, _ := key.(string)
		switch {
		case known != nil && !slices.Contains(known, name):
			return fmt.Errorf("unknown key %q", name)
		case seen[name]:
			return fmt.Errorf("the key %q is given twice", name)
		}
		seen[name] = true
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil {
			return err
		}
	}
	return nil
}

// explainJSON replaces an error of encoding/json by a text without terms of Go. name is the name of the object.
func explainJSON(err error, name string) error {
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		if wrong.Field == "" {
			return fmt.Errorf("%s must be a JSON object, not %s", name, article(wrong.Value))
		}
		return fmt.Errorf("%s must be %s, not %s", wrong.Field, kindOf(wrong), article(wrong.Value))
	}
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return errors.New("unexpected end of JSON")
	}
	text := strings.TrimPrefix(err.Error(), "json: ")
	if key, ok := strings.CutPrefix(text, "unknown field "); ok {
		return fmt.Errorf("unknown key %s", key)
	}
	if _, ok := errors.AsType[*json.SyntaxError](err); !ok { // the error of an UnmarshalJSON method
		return errors.New(text)
	}
	return fmt.Errorf("not valid JSON: %s", text)
}

// kindOf returns the JSON type that a member must have.
func kindOf(wrong *json.UnmarshalTypeError) string {
	if wrong.Field == "tags" {
		return "a list of strings"
	}
	switch kind := wrong.Type.Kind(); {
	case kind == reflect.Bool:
		return "true or false"
	case kind >= reflect.Int && kind <= reflect.Uint64:
		return "a whole number"
	case kind == reflect.Float64:
		return "a number"
	case kind == reflect.Slice:
		return "a list"
	case kind == reflect.Map || kind == reflect.Struct:
		return "an object"
	}
	return "a string"
}

// article returns the name of a JSON type with its indefinite article.
func article(kind string) string {
	if kind == "array" || kind == "object" {
		return "an " + kind
	}
	return "a " + kind
}

// StepFailure is the JSON form of the failed steps of a schedule, a source, a shard job or a batch.
type StepFailure struct {
	FailedSteps int    `json:"failed_steps,omitempty" doc:"How many steps have failed in a row. Janitors try again after a pause of at most ten minutes."`
	Failure     string `json:"failure,omitempty" doc:"Why the last step failed."`
}

// LastFailure returns the failure for people, or "".
func (f StepFailure) LastFailure() string {
	if f.FailedSteps == 0 {
		return ""
	}
	return fmt.Sprintf("%s (%d in a row)", f.Failure, f.FailedSteps)
}
