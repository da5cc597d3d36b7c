// Package serverurl checks the URLs of servers before a driver reads them. A driver reads several URLs in one text as
// one URL, drops a query that it cannot parse, and sends parameters of other drivers to the server. The errors never
// contain the URL or the value of a parameter, because both may contain a password.
package serverurl

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"unicode"
)

// Check returns an error if text is not exactly one URL with one of the schemes. The text of the error is the end of a
// sentence, and contains like, which is an example of a URL.
func Check(text, like string, schemes ...string) error {
	_, err := parse(text, like, schemes...)
	return err
}

// CheckTarget is like [Check] for a URL that receives requests. Its path may contain @, and its query may contain
// another URL.
func CheckTarget(text, like string, schemes ...string) error {
	before, _, _ := strings.Cut(text, "?")
	u, err := url.Parse(text)
	if err != nil || !slices.Contains(schemes, u.Scheme) || u.Opaque != "" || !isOne(before) || strings.ContainsFunc(text, separates) {
		return errNotOne(like)
	}
	return nil
}

// CheckPostgres is like [Check] for a URL of PostgreSQL. It also checks the parameters; see [Parameter].
func CheckPostgres(text, like string) error {
	u, err := parse(text, like, "postgres", "postgresql")
	if err != nil {
		return err
	}
	query := u.Query() // parse has checked its form
	for _, name := range slices.Sorted(maps.Keys(query)) {
		values := query[name]
		if _, err := Parameter(name, values[0]); err != nil && values[0] != "" {
			return err
		}
		if len(values) > 1 {
			return &ParameterError{name, "is given more than once"}
		}
	}
	return nil
}

func parse(text, like string, schemes ...string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || !slices.Contains(schemes, u.Scheme) || u.Opaque != "" || !isOne(text) || strings.ContainsFunc(text, separates) ||
		strings.Contains(text, "#") || strings.ContainsAny(u.Host+u.EscapedPath(), ";@") {
		return nil, errNotOne(like)
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil || u.User == nil && strings.Contains(u.RawQuery, "@") {
		return nil, errNotOne(like)
	}
	for name := range query {
		if strings.ContainsAny(name, "@:/") {
			return nil, errNotOne(like)
		}
	}
	return u, nil
}

// isOne reports whether the text contains the beginning of exactly one URL.
func isOne(text string) bool { return strings.Count(text, "://") == 1 }

// separates reports whether people write the character between several URLs. No URL contains it unescaped.
func separates(r rune) bool { return r == '|' || unicode.IsSpace(r) || unicode.IsControl(r) }

func errNotOne(like string) error {
	return fmt.Errorf("is not one URL like %s, with special characters in names and passwords as %%XX", like)
}
