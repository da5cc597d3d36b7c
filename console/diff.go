package console

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/holdfastq/holdfast/internal/change"
	"github.com/holdfastq/holdfast/store"
)

// difference is a value that differs between two JSON documents.
type difference struct {
	Path string // a JSON Pointer
	Kind string // added, removed, changed, or order if only the order of the members differs
	Was  string // JSON, with all digits; "" if the value is added
	Is   string
}

// differences is a list of differences for a page.
type differences struct {
	List []difference
	More int // how many the list leaves out
}

// Any reports whether the documents differ.
func (d differences) Any() bool { return len(d.List) > 0 }

const (
	maxDifferences = 200  // in a list
	maxShown       = 4000 // of a value, in bytes
	// maxDiffDepth is the depth below which values are compared as texts. Each level reads the whole text again.
	maxDiffDepth = 32
)

// diff compares two JSON documents by path. Members of objects belong together by their names, and items of arrays by
// their index from the nearer end. It compares values by their texts, so 1.0 differs from 1.
func diff(was, is json.RawMessage) differences {
	d := differ{}
	d.values("", compact(was), compact(is), 0)
	return d.found
}

// compact returns a document without the white space between its values.
func compact(document json.RawMessage) json.RawMessage {
	var text bytes.Buffer
	if json.Compact(&text, document) != nil {
		return document
	}
	return text.Bytes()
}

type differ struct{ found differences }

func (d *differ) add(path, kind string, was, is json.RawMessage) {
	if len(d.found.List) == maxDifferences {
		d.found.More++
		return
	}
	d.found.List = append(d.found.List, difference{path, kind, shortened(string(was)), shortened(string(is))})
}

// shortened returns a text of at most maxShown bytes.
func shortened(text string) string {
	if len(text) <= maxShown {
		return text
	}
	end := maxShown
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return fmt.Sprintf("%s… and %s more bytes", text[:end], grouped(int64(len(text)-end)))
}

func (d *differ) values(path string, was, is json.RawMessage, depth int) {
	if bytes.Equal(was, is) {
		return
	}
	if depth < maxDiffDepth && len(was) > 0 && len(is) > 0 && was[0] == is[0] {
		switch was[0] {
		case '{':
			d.objects(path, members(was), members(is), depth+1)
			return
		case '[':
			d.arrays(path, items(was), items(is), depth+1)
			return
		}
	}
	d.add(path, "changed", was, is)
}

// member is a member of an object. nth counts the members with the same name.
type member struct {
	name  string
	nth   int
	value json.RawMessage
}

// pointer escapes the name of a member for a JSON Pointer.
var pointer = strings.NewReplacer("~", "~0", "/", "~1")

func (d *differ) objects(path string, was, is []member, depth int) {
	type key struct {
		name string
		nth  int
	}
	now := make(map[key]json.RawMessage)
	for _, m := range is {
		now[key{m.name, m.nth}] = m.value
	}
	before := make(map[key]bool)
	found := len(d.found.List) + d.found.More
	for _, m := range was {
		before[key{m.name, m.nth}] = true
		at := path + "/" + pointer.Replace(m.name)
		if value, ok := now[key{m.name, m.nth}]; ok {
			d.values(at, m.value, value, depth)
		} else {
			d.add(at, "removed", m.value, nil)
		}
	}
	for _, m := range is {
		if !before[key{m.name, m.nth}] {
			d.add(path+"/"+pointer.Replace(m.name), "added", nil, m.value)
		}
	}
	if len(d.found.List)+d.found.More == found {
		d.add(path, "order", names(was), names(is))
	}
}

func names(list []member) json.RawMessage {
	var all []string
	for _, m := range list {
		all = append(all, m.name)
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

// members returns the members of an object, in their order.
func members(object json.RawMessage) (list []member) {
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
		list = append(list, member{name, seen[name], value})
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

// diffDocuments compares the editable parts of two versions of a task.
func diffDocuments(was, is change.Document) differences {
	return diff(encodeDocument(was), encodeDocument(is))
}

// encodeDocument returns a document as JSON with all characters of its payload.
func encodeDocument(d change.Document) json.RawMessage {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	d.RunAt = d.RunAt.UTC()
	if encoder.Encode(d) != nil { // such as a payload that is not JSON
		return nil
	}
	return text.Bytes()
}

// revision is an edit of a task, or an undo of one.
type revision struct {
	store.AuditEntry
	Changes differences
	Large   bool // too large to compare
}

// revisionBytes is how many bytes of versions the page of a task compares.
const revisionBytes = 1 << 20

// editable has the members of a store.Version that a person can edit.
var editable = []string{"payload", "queue", "priority", "max_attempts", "run_at", "tags", "skipped_validation"}

// revisionsOf returns the edits among audit entries.
func revisionsOf(entries []store.AuditEntry) (list []revision) {
	left := revisionBytes
	for _, e := range entries {
		if e.Action != store.ActionEdit && e.Action != store.ActionUndo {
			continue
		}
		if left -= len(e.Before) + len(e.After); left < 0 {
			list = append(list, revision{AuditEntry: e, Large: true})
			continue
		}
		if changes := diff(editableOf(e.Before), editableOf(e.After)); changes.Any() {
			list = append(list, revision{AuditEntry: e, Changes: changes})
		}
	}
	return list
}

// editableOf returns the members of a version that a person can edit.
func editableOf(version json.RawMessage) json.RawMessage {
	var kept bytes.Buffer
	kept.WriteByte('{')
	for _, m := range members(version) {
		if slices.Contains(editable, m.name) {
			if kept.Len() > 1 {
				kept.WriteByte(',')
			}
			fmt.Fprintf(&kept, "%q:%s", m.name, m.value)
		}
	}
	kept.WriteByte('}')
	return kept.Bytes()
}
