package configs

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/holdfastq/holdfast"
)

// The origins of values from outside Load.
const (
	StoreOrigin = "store"
	CodeOrigin  = "code" // an option of the program, see WithType
)

const defaultsPrefix = "defaults."

// WithStored returns the configuration with the task settings of a store. A key of a type has the first of these
// values: types.<name> in the store, types.<name> in c, defaults in the store, defaults in c. ignored are the stored
// settings without effect: keys and values that this build does not know, and values that conflict with others in c.
// Stored settings never make the result invalid.
func (c Config) WithStored(stored map[string]string) (merged Config, ignored []*Error) {
	merged = c
	merged.origins, merged.Types = make(map[string]string), make(map[string]holdfast.TypeSettings)
	maps.Copy(merged.origins, c.origins)
	ignore := func(key, text string) { ignored = append(ignored, &Error{key, StoreOrigin, text}) }
	valid := make(map[string]map[string]string) // by the prefix of the keys, then by the rest of the key
	for _, key := range slices.Sorted(maps.Keys(stored)) {
		text, err := StoredValue(key, stored[key])
		if problem, ok := errors.AsType[*Error](err); ok {
			ignored = append(ignored, problem)
			continue
		}
		prefix, suffix, _ := splitTaskKey(key)
		if valid[prefix] == nil {
			valid[prefix] = make(map[string]string)
		}
		valid[prefix][suffix] = text
	}

	defaults := c.Defaults
	if c.overlay(&merged, &defaults, c.Defaults, defaultsPrefix, valid[defaultsPrefix], nil, ignore) {
		merged.Defaults = defaults
	} else {
		delete(valid, defaultsPrefix)
	}
	names := slices.Collect(maps.Keys(c.Types))
	for prefix := range valid {
		if name, ok := typeOfPrefix(prefix); ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		base, configured := c.Types[name]
		if !configured {
			base = c.Defaults
		}
		t, prefix := base, typesPrefix+name+"."
		if !c.overlay(&merged, &t, base, prefix, valid[prefix], valid[defaultsPrefix], ignore) {
			t = base
			for _, s := range taskSettings(prefix, &t) { // not inherited from the defaults of the store
				if merged.Origin(s.key) != c.Origin(s.key) {
					merged.origins[s.key] = c.Origin(s.key)
				}
			}
		}
		merged.Types[name] = t
	}
	return merged, ignored
}

// overlay sets the settings in t, which has the values of base, and records their origins in merged. own has the
// settings with the prefix. inherited has those that apply where c has no value with the prefix. overlay returns false
// if the result is not valid.
func (c Config) overlay(
	merged *Config, t *holdfast.TypeSettings, base holdfast.TypeSettings, prefix string, own, inherited map[string]string, ignore func(key, text string),
) bool {
	t.Policy.Delays = slices.Clone(base.Policy.Delays)
	general := taskSettings("", new(c.Defaults))
	for i, s := range taskSettings(prefix, t) {
		suffix := general[i].key
		_, set := c.origins[s.key]
		text, ok := own[suffix]
		if ok {
			merged.origins[s.key] = StoreOrigin
		} else if !set && s.value.text() == general[i].value.text() { // only Load sets the origins of a type
			text, ok = inherited[suffix]
		}
		if ok {
			_ = s.value.set(text) // no error, because StoredValue has checked the text
		}
	}
	valid := true
	combination(*t, prefix, func(key, text string) {
		ignore(key, text)
		valid = false
	})
	if !valid {
		for suffix := range own {
			delete(merged.origins, prefix+suffix)
			if origin, ok := c.origins[prefix+suffix]; ok {
				merged.origins[prefix+suffix] = origin
			}
		}
	}
	return valid
}

// splitTaskKey splits the key of a task setting after "defaults." or "types.<name>.".
func splitTaskKey(key string) (prefix, suffix string, ok bool) {
	if rest, ok := strings.CutPrefix(key, defaultsPrefix); ok {
		return defaultsPrefix, rest, slices.Contains(taskSuffixes(), rest)
	}
	name, suffix, ok := splitTypeKey(key)
	return typesPrefix + name + ".", suffix, ok && taskType(name) == nil
}

func typeOfPrefix(prefix string) (name string, ok bool) {
	name, ok = strings.CutPrefix(strings.TrimSuffix(prefix, "."), typesPrefix)
	return name, ok
}

// StoredValue returns the canonical form of a value of a task setting, for the store. It returns an *Error if the value
// is out of range or the key is not the key of a task setting. The text of the error says where to set the key, or
// names a similar key.
func StoredValue(key, text string) (string, error) {
	_, suffix, ok := splitTaskKey(key)
	if !ok {
		return "", notStored(key)
	}
	s := taskSetting(suffix, new(holdfast.TypeSettings))
	err := s.value.set(text)
	if err == nil {
		err = s.value.check()
	}
	if err != nil {
		return "", &Error{key, StoreOrigin, s.describe(err)}
	}
	return s.value.text(), nil
}

// taskSetting returns the setting of t with a suffix that splitTaskKey has accepted.
func taskSetting(suffix string, t *holdfast.TypeSettings) setting {
	settings := taskSettings("", t)
	return settings[slices.IndexFunc(settings, func(s setting) bool { return s.key == suffix })]
}

// notStored returns the error for a key that does not belong to a task setting.
func notStored(key string) *Error {
	n := newNames()
	if name, _, ok := splitTypeKey(key); ok {
		return &Error{key, StoreOrigin, fmt.Sprintf("%q %s", name, taskType(name))}
	}
	if key != "" && n.known(key) {
		return &Error{key, StoreOrigin, fmt.Sprintf("is a setting of a process: set %s in its file or %s in its environment, and restart it",
			key, variableFor(key))}
	}
	text := "unknown task setting"
	var similar []string
	for _, suffix := range taskSuffixes() {
		similar = append(similar, defaultsPrefix+suffix)
	}
	similar = append(similar, slices.DeleteFunc(n.similarKeys(key), func(known string) bool { return !strings.HasPrefix(known, typesPrefix) })...)
	if len(key) <= 200 {
		if best := closest(key, similar); best != "" {
			text += "; did you mean " + best + "?"
		}
	}
	return &Error{key, StoreOrigin, text}
}

// TaskEntries returns task settings. With all, it returns every key of the defaults and of each known type, and
// otherwise only the keys that a layer or the store sets.
func (c Config) TaskEntries(all bool) []Entry {
	entries := []Entry{}
	for _, s := range c.settings() {
		if _, _, ok := splitTaskKey(s.key); !ok {
			continue
		}
		if _, set := c.origins[s.key]; set && c.Origin(s.key) != "default" || all {
			entries = append(entries, Entry{s.key, s.value.text(), c.Origin(s.key)})
		}
	}
	return entries
}

// TaskEntry returns one task setting. The type in the key need not be known. It returns an *Error if the key does not
// belong to a task setting.
func (c Config) TaskEntry(key string) (Entry, error) {
	prefix, suffix, ok := splitTaskKey(key)
	if !ok {
		return Entry{}, notStored(key)
	}
	t := c.Defaults
	if name, ok := typeOfPrefix(prefix); ok {
		t = c.typeSettings(name)
	}
	return Entry{key, taskSetting(suffix, &t).value.text(), c.Origin(key)}, nil
}

// WithType returns the configuration after change has changed the settings of a type. Each key that change sets, even
// to its present value, is then treated as set in c. The effect of change must not depend on the present settings.
func (c Config) WithType(name string, change func(*holdfast.TypeSettings) error) (Config, error) {
	t := *c.Settings().For(name)
	t.Policy.Delays = slices.Clone(t.Policy.Delays)
	// No program sets these values, so a key that differs afterwards was set.
	const odd = 7919 * time.Nanosecond
	probe := holdfast.TypeSettings{
		Policy: holdfast.Policy{
			Strategy: "-", Base: odd, Factor: 1.00007919, Max: odd, Jitter: 0.00007919, Delays: []time.Duration{odd}, Deadline: odd,
			MaxAttempts: 2_000_007_919, MaxCrashes: 2_000_007_919, MaxDeferrals: 2_000_007_919, AfterDeath: "-", KeepAttempts: "-",
		},
		Timeout: odd, AbandonAfter: odd, Queue: "-",
		Breaker: holdfast.BreakerRules{Faults: 2_000_007_919, Rate: 2_000_007_919, Attempts: 2_000_007_919, Window: odd},
	}
	if err := change(&t); err != nil {
		return c, err
	}
	origins, types := make(map[string]string), make(map[string]holdfast.TypeSettings)
	maps.Copy(origins, c.origins)
	maps.Copy(types, c.Types)
	for _, once := range []bool{false, true} { // a program may set either value
		probe.Policy.AtMostOnce = once
		before, changed := probe, probe
		if err := change(&changed); err != nil {
			return c, err
		}
		untouched := taskSettings("", &before)
		for i, s := range taskSettings(typesPrefix+name+".", &changed) {
			if s.value.text() != untouched[i].value.text() {
				origins[s.key] = CodeOrigin
			}
		}
	}
	types[name] = t
	c.origins, c.Types = origins, types
	return c, nil
}
