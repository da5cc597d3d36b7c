// Package diff compares JSON documents for people.
package diff

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Difference is a value that differs between two JSON documents.
type Difference struct {
	Path string `json:"path" doc:"A JSON Pointer."`
	Kind string `json:"kind" enum:"added,removed,changed,order" doc:"order means that only the order of the members differs."`
	// Was and Is are JSON with all digits, or "" if there is no value. A long value is shortened.
	Was string `json:"was,omitempty" doc:"The JSON of the value before the change, at most 4,000 bytes of it."`
	Is  string `json:"is,omitempty" doc:"The JSON of the value after the change, at most 4,000 bytes of it."`
}

// Differences is a list of differences for people.
type Differences struct {
	List []Difference
	More int // how many the list leaves out
}

// Any reports whether the documents differ.
func (d Differences) Any() bool { return len(d.List) > 0 }

const (
	Max      = 200  // differences in a list
	MaxShown = 4000 // of a value, in bytes
	// maxDepth is the depth below which values are compared as texts. Each level reads the whole text again.
	maxDepth = 32
)

// Of compares two JSON documents by path. Members of objects belong together by their names, and items of arrays by
// their index from the nearer end. It compares values by their texts, so 1.0 differs from 1.
func Of(was, is json.RawMessage) Differences {
	d := differ{}
	d.values("", Compact(was), Compact(is), 0)
	return d.found
}

// Compact returns a document without the white space between its values.
func Compact(document json.RawMessage) json.RawMessage {
	var text bytes.Buffer
	if json.Compact(&text, document) != nil {
		return document
	}
	return text.Bytes()
}

type differ struct{ found Differences }

func (d *differ) add(path, kind string, was, is json.RawMessage) {
	if len(d.found.List) == Max {
		d.found.More++
		return
	}
	d.found.List = append(d.found.List, Difference{path, kind, Shortened(string(was)), Shortened(string(is))})
}

// Shortened returns a text of at most MaxShown bytes.
func Shortened(text string) string {
	if len(text) <= MaxShown {
		return text
	}
	end := MaxShown
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return fmt.Sprintf("%s… and %s more bytes", text[:end], fmt.Sprint(len(text)-end))
}

func (d *differ) values(path string, was, is json.RawMessage, depth int) {
	if bytes.Equal(was, is) {
		return
	}
	if depth < maxDepth && len(was) > 0 && len(is) > 0 && was[0] == is[0] {
		switch was[0] {
		case '{':
			d.objects(path, Members(was), Members(is), depth+1)
			return
		case '[':
			d.arrays(path, items(was), items(is), depth+1)
			return
		}
	}
	d.add(path, "changed", was, is)
}

// Member is a member of an object. Nth counts the members with the same name.
type Member struct {
	Name  string
	Nth   int
	Value json.RawMessage
}

// pointer escapes the name of a member for a JSON Pointer.
var pointer = strings.NewReplacer("~", "~0", "/", "~1")

func (d *differ) objects(path string, was, is []Member, depth int) {
	type key struct {
		name string
		nth  int
	}
	now := make(map[key]json.RawMessage)
	for _, m := range is {
		now[key{m.Name, m.Nth}] = m.Value
	}
	before := make(map[key]bool)
	found := len(d.found.List) + d.found.More
	for _, m := range was {
		before[key{m.Name, m.Nth}] = true
		at := path + "/" + pointer.Replace(m.Name)
		if value, ok := now[key{m.Name, m.Nth}]; ok {
			d.values(at, m.Value, value, depth)
		} else {
			d.add(at, "removed", m.Value, nil)
		}
	}
	for _, m := range is {
		if !before[key{m.Name, m.Nth}] {
			d.add(path+"/"+pointer.Replace(m.Name), "added", nil, m.Value)
		}
	}
	if len(d.found.List)+d.found.More == found {
		d.add(path, "order", names(was), names(is))
	}
}

func names(list []Member) json.RawMessage {
	var all []string
	for _, m := range list {
		all = append(all, m.Name)
	}
	return json.RawMessage(strings.Join(all, ", "))
}

func (d *differ) arrays(path string, was, is []json.RawMessage, depth int) {
	start := 0
	for start < len(was) && start < len(is) && bytes.Equal(was[start], is[start]) {
		start++
	}
	end := 0 // items that are equal at the end
	for end < min(len(was), len(is))-start && bytes.Equal(was[len(was)-1-end], is[len(is)-1-end]) {
		end++
	}
	was, is = was[:len(was)-end], is[:len(is)-end]
	for i := start; i < max(len(was), len(is)); i++ {
		at := path + "/" + strconv.Itoa(i)
		switch {
		case i >= len(is):
			d.add(at, "removed", was[i], nil)
		case i >= len(was):
			d.add(at, "added", nil, is[i])
		default:
			d.values(at, was[i], is[i], depth)
		}
	}
}

// Members returns the members of an object, in their order.
func Members(object json.RawMessage) (list []Member) {
	decoder := json.NewDecoder(bytes.NewReader(object))
	_, _ = decoder.Token() // the brace; the text is valid JSON
	seen := make(map[string]int)
	for decoder.More() {
		token, err := decoder.Token()
		name, _ := token.(string)
		var value json.RawMessage
		if err != nil || decoder.Decode(&value) != nil {
			return list
		}
		list = append(list, Member{name, seen[name], value})
		seen[name]++
	}
	return list
}

// items returns the items of an array.
func items(array json.RawMessage) (list []json.RawMessage) {
	if json.Unmarshal(array, &list) != nil {
		return nil
	}
	return list
}
