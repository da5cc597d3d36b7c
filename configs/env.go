package configs

import (
	"maps"
	"slices"
	"strings"
)

// aliases are variables that are used if the variable of the key is not set.
var aliases = map[string]string{
	"DATABASE_URL": "database.url",
	"AMQP_URL":     "amqp.urls",
}

// foreign matches HOLDFAST_ variables that are not settings. Container platforms set some for a service with that name
// (HOLDFAST_PORT_8480_TCP). Others are the name of a person for the audit log, and variables of this project's scripts
// and tests.
var foreign = lazily(`^HOLDFAST_(CONFIG|ACTOR|STATE|SERVERS|TEST_\w+|(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?))$`)

func (l *loader) readEnv() {
	secret, empty := make(map[string]bool), make(map[string]bool)
	c := Default()
	for _, s := range c.settings() {
		secret[s.key], empty[s.key] = s.secret, s.empty
	}
	layer := make(map[string]given)
	for _, name := range slices.Sorted(maps.Keys(l.env)) {
		rest, ours := strings.CutPrefix(name, envPrefix)
		if !ours {
			continue
		}
		text := l.env[name]
		found := l.names.resolve(rest)
		if text == "" && (len(found) != 1 || !empty[found[0]]) {
			continue
		}
		if base, isFile := strings.CutSuffix(rest, fileSuffix); isFile {
			keys := l.names.resolve(base)
			if len(keys) == 1 && (secret[keys[0]] || strings.HasPrefix(keys[0], secretsPrefix)) {
				var ok bool
				if text, ok = l.secretFile(keys[0], name); !ok {
					continue
				}
				found = keys
			}
		}
		switch {
		case len(found) == 1:
			if earlier, twice := layer[found[0]]; twice {
				l.problem(found[0], "env "+name, "is also set by %s; unset one of them", earlier.origin)
				continue
			}
			layer[found[0]] = given{text, "env " + name}
		case len(found) > 1:
			l.problem(name, "environment", "is ambiguous: it may mean %s; set the keys in the file", strings.Join(found, " or "))
		case !foreign().MatchString(name):
			l.unknown(name, "environment", "variable", func() string { return l.names.closestVariable(rest) })
		}
	}
	for name, key := range aliases {
		if _, set := layer[key]; !set && l.env[name] != "" {
			layer[key] = given{l.env[name], "env " + name}
		}
	}
	maps.Copy(l.merged, layer)
}

// secretFile returns the content of the file that a _FILE variable names.
func (l *loader) secretFile(key, name string) (string, bool) {
	data, err := readBounded(l.env[name])
	if err != nil {
		l.problem(key, "env "+name, "%s", err)
		return "", false
	}
	text := strings.TrimSpace(string(data))
	if text == "" {
		l.problem(key, "env "+name, "the file %s is empty", l.env[name])
		return "", false
	}
	return text, true
}
