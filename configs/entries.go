package configs

import (
	"net/url"
	"slices"
	"strings"

	"github.com/holdfastq/holdfast"
)

// Entry is a key with its effective value.
type Entry struct {
	Key    string `json:"key"`
	Value  string `json:"value"`  // list items are joined with commas, secrets are redacted
	Origin string `json:"origin"` // as in Config.Origin
}

// Redacted replaces a secret.
const Redacted = "********"

// Entries returns every key in the order of the example file, including those of each configured type. It redacts
// secrets.
func (c Config) Entries() []Entry {
	var entries []Entry
	for _, s := range c.settings() {
		entries = append(entries, Entry{s.key, s.redacted(), c.Origin(s.key)})
	}
	return entries
}

// redacted returns the value without secrets.
func (s setting) redacted() string {
	text := s.value.text()
	switch {
	case !s.secret || text == "":
		return text
	case strings.HasPrefix(s.key, secretsPrefix):
		return Redacted
	}
	items := []string{text} // a URL may contain a comma
	if _, several := s.value.(many[string]); several {
		items = fields(text)
	}
	for i, item := range items {
		items[i] = RedactURL(item)
	}
	return strings.Join(items, ",")
}

var passwordParameter = lazily(`(?i)pass|pwd|secret|token|key|credential`)

// RedactURL returns a URL with Redacted in place of its password and of every query parameter that may contain a
// secret. It does not change the names of files, or inproc:. It replaces any other text by Redacted, and also a URL
// that may have a password in another place.
func RedactURL(text string) string {
	if strings.HasPrefix(text, EmbeddedDatabase) || text == EmbeddedBroker {
		return RedactText(text)
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" && u.User == nil || u.Opaque != "" || u.Fragment != "" || strings.ContainsAny(u.Host+u.EscapedPath(), ";|@ ") {
		return Redacted
	}
	user := ""
	if u.User != nil {
		user = url.User(u.User.Username()).String()
		if _, has := u.User.Password(); has {
			user += ":" + Redacted
		}
		user += "@"
	}
	query := u.Query()
	for name, values := range query {
		switch {
		case strings.ContainsAny(name, "@:/"):
			return Redacted
		case passwordParameter().MatchString(name) || strings.Contains(strings.Join(values, ""), "@"):
			query[name] = []string{Redacted}
		}
	}
	redacted := u.Scheme + "://" + user + u.Host + u.EscapedPath()
	if len(query) > 0 {
		redacted += "?" + strings.ReplaceAll(query.Encode(), url.QueryEscape(Redacted), Redacted)
	}
	return redacted
}

// withPassword matches from the first user with a password to the last in the URLs of a line. A password that is not
// escaped may contain any character.
var withPassword = lazily(`://[^\s/@]*:.*@`)

// RedactText returns a text, such as a message, with Redacted in place of every user with a password in a URL. It does
// not change the examples of this program, whose user and password are "user" and "password", or guest and guest.
func RedactText(text string) string {
	return withPassword().ReplaceAllStringFunc(text, func(found string) string {
		if found == "://user:password@" || found == "://guest:guest@" {
			return found
		}
		return "://" + Redacted + "@"
	})
}

// Variable describes a key and its environment variable.
type Variable struct {
	Key     string `json:"key"` // <name> is the name of any type or secret
	Name    string `json:"name"`
	Also    string `json:"also,omitempty"` // another variable, used if Name is not set
	File    string `json:"file,omitempty"` // for a secret, the variable with the name of a file that contains it
	Default string `json:"default"`
	Doc     string `json:"doc"`
}

// Variables returns every key with its variable, in the order of the example file. The reference documentation is
// generated from it.
func Variables() []Variable {
	c := Default()
	settings := c.settings()
	after := slices.IndexFunc(settings, func(s setting) bool { return strings.HasPrefix(s.key, "defaults.") })
	settings = slices.Insert(settings, after, secretSetting("<name>", &secretKeys{}), hostsSetting("<name>", &[]string{}))
	perType := taskSettings(typesPrefix+"<name>.", new(holdfast.TypeSettings))
	all := make([]Variable, 0, len(settings)+len(perType))
	for _, s := range settings {
		all = append(all, Variable{Key: s.key, Name: variableFor(s.key), Default: s.value.text(), Doc: s.doc})
		v := &all[len(all)-1]
		for name, key := range aliases {
			if key == s.key {
				v.Also = name
			}
		}
		if s.secret {
			v.File = v.Name + fileSuffix
		}
	}
	for _, s := range perType {
		all = append(all, Variable{Key: s.key, Name: variableFor(s.key), Default: "that of defaults", Doc: s.doc})
	}
	return all
}

// variableFor returns the variable of a key. In the key, <name> is a placeholder.
func variableFor(key string) string {
	before, after, placeholder := strings.Cut(key, "<name>")
	if !placeholder {
		return envPrefix + variable(key)
	}
	return envPrefix + variable(before) + "<NAME>" + variable(after)
}
