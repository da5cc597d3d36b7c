package console

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/search"
)

// place is an error in a search, and where it is.
type place struct {
	Text              string
	Query             string // the search; "" if the error has no place
	Before, At, After string // the parts of the search before, at and after the error
}

// placeOf returns the place of an error in a search.
func placeOf(query string, err error) place {
	p := place{Text: err.Error()}
	for _, sentinel := range []error{holdfast.ErrInvalid, holdfast.ErrNotFound} {
		p.Text = strings.TrimPrefix(p.Text, sentinel.Error()+": ")
	}
	syntax, ok := errors.AsType[*search.SyntaxError](err)
	if !ok {
		return p
	}
	p.Query, p.Before = query, query[:syntax.Offset]
	p.At, p.After = query[syntax.Offset:], ""
	if end := strings.IndexByte(p.At, ' '); end > 0 {
		p.At, p.After = p.At[:end], p.At[end:]
	}
	if strings.TrimSpace(p.At) == "" { // the end of the search, or a missing value
		p.At, p.After = "…", " "+p.After
	}
	return p
}

// maxSuggestions is the maximum number of suggestions of each kind.
const maxSuggestions = 50

// suggestions returns how a search can go on: terms with the states, types and queues that the store knows, and the
// names of the other fields. Each suggestion begins with the search, because it replaces the whole text of the field.
func (c *Console) suggestions(ctx context.Context, query string) ([]string, error) {
	groups, err := c.b.Store.CountGroups(ctx)
	if err != nil {
		return nil, err
	}
	types, queues := make(map[string]bool), make(map[string]bool)
	for _, g := range groups {
		types[g.Type], queues[g.Queue] = true, true
	}
	known := map[string][]string{
		"state": search.StateNames(), "type": slices.Sorted(maps.Keys(types)), "queue": slices.Sorted(maps.Keys(queues)),
		"priority": {"low", "normal", "high", "critical"}, "since": {"1h", "24h"},
	}
	begin := ""
	if query != "" {
		begin = query + " "
	}
	var list []string
	for _, field := range search.Fields() {
		values := known[field.Name]
		if strings.Contains(" "+begin, " "+field.Name+":") && !slices.Contains([]string{"-id", "tag", "payload"}, field.Name) {
			continue // other fields may appear once
		}
		for _, value := range values[:min(len(values), maxSuggestions)] {
			if strings.ContainsAny(value, " \"\\") {
				value = strconv.Quote(value)
			}
			list = append(list, begin+field.Name+":"+value)
		}
		if len(values) == 0 {
			separator := ":"
			if field.Name == "payload" {
				separator = "."
			}
			list = append(list, begin+field.Name+separator)
		}
	}
	return list, nil
}
