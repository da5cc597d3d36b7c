package configs

import (
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/holdfastq/holdfast"
)

// Entry is one key with its effective value.
type Entry struct {
	Key    string `json:"key"`
	Value  string `json:"value"`  // lists joined with commas, secrets redacted
	Origin string `json:"origin"` // as in Config.Origin
}

// Redacted stands for a secret.
const Redacted = "********"

// Entries returns every key in the order of the example file, those of each
// configured type included. No value in them is secret.
func (c Config) Entries() []Entry {
	var entries []Entry
	for _, s := range c.settings() {
		entries = append(entries, Entry{s.key, s.shown(), c.Origin(s.key)})
	}
	return entries
}

// shown is the value as it may be shown to anybody.
func (s setting) shown() string {
	text := s.value.text()
	switch {
	case !s.secret || text == "":
		return text
	case strings.HasPrefix(s.key, secretsPrefix):
		return Redacted
	}
	items := []string{text} // a URL may have a comma in it
	if _, several := s.value.(many[string]); several {
		items = fields(text)
	}
	for i, item := range items {
		items[i] = RedactURL(item)
	}
	return strings.Join(items, ",")
}

var passwordParameter = regexp.MustCompile(`(?i)pass|secret|token|key`)

// RedactURL returns the URL with its password, and every query parameter that may
// hold one, replaced. A file's name and inproc: are no secret; what else is no URL is
// replaced as a whole.
func RedactURL(text string) string {
	if strings.HasPrefix(text, EmbeddedDatabase) || text == EmbeddedBroker {
		return text
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" && u.User == nil || u.Opaque != "" {
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
	for name := range query {
		if passwordParameter.MatchString(name) {
			query[name] = []string{Redacted}
		}
	}
	shown := u.Scheme + "://" + user + u.Host + u.EscapedPath()
	if len(query) > 0 {
		shown += "?" + strings.ReplaceAll(query.Encode(), url.QueryEscape(Redacted), Redacted)
	}
	return shown
}

// Variable describes a key and its environment variable.
type Variable struct {
	Key     string `json:"key"` // <name> stands for any type or secret
	Name    string `json:"name"`
	Also    string `json:"also,omitempty"` // a well-known variable that is read if Name is not set
	File    string `json:"file,omitempty"` // for a secret, the variable that names a file with it
	Default string `json:"default"`
	Doc     string `json:"doc"`
}

// Variables returns every key with its variable, in the order of the example file.
// The reference documentation is made from it.
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

// variableFor is the variable of a key, in which <name> stands for itself.
func variableFor(key string) string {
	before, after, placeholder := strings.Cut(key, "<name>")
	if !placeholder {
		return envPrefix + variable(key)
	}
	return envPrefix + variable(before) + "<NAME>" + variable(after)
}
