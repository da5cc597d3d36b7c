package configs

import (
	"maps"
	"slices"
	"strings"

	"github.com/holdfastq/holdfast"
)

const (
	envPrefix  = "HOLDFAST_"
	fileSuffix = "_FILE" // NAME_FILE names a file that contains the secret of NAME
)

// variable returns a key or name in the form for an environment variable: in upper case, with _ for each character that
// is neither a letter nor a digit.
func variable(name string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z':
			return r - 'a' + 'A'
		case r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			return r
		}
		return '_'
	}, name)
}

// names finds the key of an environment variable. types and secrets are the names in the file and the flags. If a
// variable matches none of these, its own name in lower case is a new name.
type names struct {
	fixed   map[string]string // keys by variable without the prefix
	task    []string          // the suffixes of keys after "types.<name>."
	types   []string
	secrets []string
}

func newNames() *names {
	n := &names{fixed: make(map[string]string), task: taskSuffixes()}
	c := Default()
	for _, s := range c.settings() {
		n.fixed[variable(s.key)] = s.key
	}
	return n
}

func taskSuffixes() []string {
	var suffixes []string
	for _, s := range taskSettings("", new(holdfast.TypeSettings)) {
		suffixes = append(suffixes, s.key)
	}
	return suffixes
}

// splitTypeKey splits types.<name>.<suffix>. The name of a type may contain dots.
func splitTypeKey(key string) (name, suffix string, ok bool) {
	rest, ok := strings.CutPrefix(key, typesPrefix)
	if !ok {
		return "", "", false
	}
	for _, suffix := range taskSuffixes() {
		if name, ok := strings.CutSuffix(rest, "."+suffix); ok {
			return name, suffix, true
		}
	}
	return "", "", false
}

// known reports whether the key exists. It does not check the name of the type or secret in it.
func (n *names) known(key string) bool {
	if n.fixed[variable(key)] == key {
		return true
	}
	if _, _, ok := splitTypeKey(key); ok {
		return true
	}
	_, ok := secretName(key)
	return ok
}

// secretName returns the name of the secret in a key.
func secretName(key string) (name string, ok bool) {
	if name, ok = strings.CutPrefix(key, secretsPrefix); !ok {
		name, ok = strings.CutPrefix(key, hostsPrefix)
	}
	return name, ok && !strings.Contains(name, ".")
}

// section reports whether the key is a group of keys.
func (n *names) section(key string) bool {
	if key+"." == typesPrefix || key+"." == secretsPrefix || key+"." == hostsPrefix {
		return true
	}
	for _, known := range n.fixed {
		if strings.HasPrefix(known, key+".") {
			return true
		}
	}
	if rest, ok := strings.CutPrefix(key, typesPrefix); ok {
		return taskType(rest) == nil && !n.known(key)
	}
	return false
}

// learn adds the type or secret in a key to the known names.
func (n *names) learn(key string) {
	if name, _, ok := splitTypeKey(key); ok && !slices.Contains(n.types, name) {
		n.types = append(n.types, name)
	}
	if name, ok := secretName(key); ok && !slices.Contains(n.secrets, name) {
		n.secrets = append(n.secrets, name)
	}
}

// resolve returns the keys that a variable without its prefix may mean: none if the variable is unknown, and several if
// two types or secrets are the same in upper case.
func (n *names) resolve(env string) []string {
	if key, ok := n.fixed[env]; ok {
		return []string{key}
	}
	if rest, ok := strings.CutPrefix(env, variable(typesPrefix)); ok {
		for _, suffix := range n.task {
			if name, ok := strings.CutSuffix(rest, "_"+variable(suffix)); ok && name != "" {
				return matches(n.types, name, typesPrefix, "."+suffix)
			}
		}
	}
	for _, prefix := range []string{secretsPrefix, hostsPrefix} {
		if name, ok := strings.CutPrefix(env, variable(prefix)); ok && name != "" {
			return matches(n.secrets, name, prefix, "")
		}
	}
	return nil
}

func matches(candidates []string, name, before, after string) []string {
	var keys []string
	for _, candidate := range candidates {
		if variable(candidate) == name {
			keys = append(keys, before+candidate+after)
		}
	}
	slices.Sort(keys) // for the error message
	if keys == nil {
		keys = []string{before + strings.ToLower(name) + after}
	}
	return keys
}

// closest returns the candidate with the fewest edits to name, or "" if none is similar.
func closest(name string, candidates []string) string {
	best, limit := "", max(3, len(name)/2)+1
	for _, candidate := range candidates {
		if d := edits(name, candidate); d < limit {
			best, limit = candidate, d
		}
	}
	return best
}

// similarKeys returns the keys to compare with an unknown key.
func (n *names) similarKeys(key string) []string {
	keys := slices.Collect(maps.Values(n.fixed))
	if rest, ok := strings.CutPrefix(key, typesPrefix); ok {
		for i, r := range rest {
			if r == '.' {
				for _, suffix := range n.task {
					keys = append(keys, typesPrefix+rest[:i]+"."+suffix)
				}
			}
		}
	}
	slices.Sort(keys)
	return keys
}

// closestVariable returns a known variable that is similar to an unknown one, or "". rest is the unknown variable
// without its prefix.
func (n *names) closestVariable(rest string) string {
	candidates := slices.Sorted(maps.Keys(n.fixed))
	for i, r := range rest {
		if r == '_' && strings.HasPrefix(rest, variable(typesPrefix)) && i > len(typesPrefix) {
			for _, suffix := range n.task {
				candidates = append(candidates, rest[:i+1]+variable(suffix))
			}
		}
	}
	if found := closest(rest, candidates); found != "" {
		return envPrefix + found
	}
	return ""
}

// closestFlag returns a known flag, with dashes, that is similar to an unknown one, or "".
func (n *names) closestFlag(flag string) string {
	dashes := strings.NewReplacer(".", "-", "_", "-")
	var flags []string
	for _, key := range n.similarKeys("") {
		flags = append(flags, dashes.Replace(key))
	}
	if found := closest(dashes.Replace(flag), flags); found != "" {
		return "--" + found
	}
	return ""
}

// edits returns the Levenshtein distance in bytes.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
