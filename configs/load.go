package configs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/rawbytes"
	"github.com/knadh/koanf/v2"
	yamlv3 "go.yaml.in/yaml/v3"

	"github.com/holdfastq/holdfast"
)

// FileVariable is the variable that names the configuration file if Options.File is empty.
const FileVariable = "HOLDFAST_CONFIG"

// MaxFile is the maximum size of a configuration or secret file, in bytes.
const MaxFile = 1 << 20

// Options are the sources of Load. The zero value means defaults only.
type Options struct {
	// File is the path of a YAML file. If empty, the variable FileVariable names the file, if it is set.
	File string
	// Env is the environment as os.Environ returns it.
	Env []string
	// Flags are the given flags by name, without leading dashes. A name is a key (worker.lease) or a key with dashes
	// (worker-lease).
	Flags map[string]string
}

// Error is a problem with one key. It wraps holdfast.ErrInvalid.
type Error struct {
	Key     string // as written in the source
	Origin  string // as in Config.Origin
	Problem string // contains the value, unless it is a secret
}

func (e *Error) Error() string { return fmt.Sprintf("%s (%s): %s", e.Key, e.Origin, e.Problem) }

// Unwrap returns holdfast.ErrInvalid.
func (e *Error) Unwrap() error { return holdfast.ErrInvalid }

// Load merges defaults, file, environment and flags, and validates the result. The error joins all problems. Each is an
// *Error, which wraps holdfast.ErrInvalid. If the file cannot be read, Load returns only that error. Even after an
// error, the Config has the values that could be read, for display only.
func Load(options Options) (Config, error) {
	l := &loader{merged: make(map[string]given), names: newNames(), env: make(map[string]string)}
	for _, pair := range options.Env {
		name, text, _ := strings.Cut(pair, "=")
		l.env[name] = text
	}
	if options.File == "" {
		options.File = l.env[FileVariable]
	}
	if options.File != "" {
		if err := l.readFile(options.File); err != nil {
			return Default(), err
		}
	}
	flags := l.readFlags(options.Flags) // first, because flags may contain names of types
	l.readEnv()
	maps.Copy(l.merged, flags)
	c := l.config()
	if err := c.Validate(); err != nil {
		l.problems = append(l.problems, err)
	}
	return c, errors.Join(l.problems...)
}

// loader merges the layers.
type loader struct {
	merged   map[string]given // by key, with the dots
	names    *names
	env      map[string]string
	problems []error
}

// maxProblems limits the reported problems, because a file for another program may have many.
const maxProblems = 50

func (l *loader) problem(key, origin, format string, args ...any) {
	if len(l.problems) < maxProblems {
		l.problems = append(l.problems, &Error{key, origin, fmt.Sprintf(format, args...)})
	}
}

// given is a value in a layer.
type given struct {
	value  any
	origin string
}

func (l *loader) readFile(path string) error {
	data, err := readBounded(path)
	if err != nil {
		return fmt.Errorf("read configuration: %w", err)
	}
	origin := "file " + path
	file := koanf.New(".")
	if err := file.Load(rawbytes.Provider(data), yaml.Parser()); err != nil {
		return fmt.Errorf("%w: read configuration %s: %s", holdfast.ErrInvalid, path, oneLine(err))
	}
	if moreDocuments(data) {
		return fmt.Errorf("%w: read configuration %s: it contains more than one YAML document", holdfast.ErrInvalid, path)
	}
	layer := make(map[string]given)
	l.flatten("", file.Raw(), origin, layer)
	for key := range layer {
		l.names.learn(key)
	}
	maps.Copy(l.merged, layer)
	return nil
}

// oneLine returns an error of the YAML parser, which can be a long list, as one short line.
func oneLine(err error) string {
	const longest = 500
	text := strings.Join(strings.Fields(err.Error()), " ")
	if len(text) > longest {
		text = text[:longest] + "…"
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}

// moreDocuments reports whether there is another YAML document after the first. The parser would ignore it.
func moreDocuments(data []byte) bool {
	decoder := yamlv3.NewDecoder(bytes.NewReader(data))
	var node yamlv3.Node
	if decoder.Decode(&node) != nil {
		return false
	}
	return !errors.Is(decoder.Decode(&node), io.EOF)
}

// flatten converts nested maps to dotted keys and reports unknown keys.
func (l *loader) flatten(before string, nested map[string]any, origin string, layer map[string]given) {
	for _, name := range slices.Sorted(maps.Keys(nested)) {
		key, value := before+name, nested[name]
		inner, isMap := value.(map[string]any)
		switch {
		case isMap && len(inner) > 0 && !l.names.known(key):
			l.flatten(key+".", inner, origin, layer)
		case value == nil && l.names.known(key):
		case (isMap || value == nil) && l.names.section(key):
			if rest, ok := strings.CutPrefix(key, typesPrefix); ok && !slices.Contains(l.names.types, rest) {
				l.names.types = append(l.names.types, rest)
			}
		case !l.names.known(key):
			l.unknown(key, origin, "key", func() string { return closest(key, l.names.similarKeys(key)) })
		default:
			if _, twice := layer[key]; twice {
				l.problem(key, origin, "is set twice")
			}
			layer[key] = given{value, origin}
		}
	}
}

// unknown reports an unknown key. suggest returns a similar known key, or "".
func (l *loader) unknown(key, origin, kind string, suggest func() string) {
	if len(l.problems) >= maxProblems {
		return
	}
	const longest = 200 // the comparison takes quadratic time
	hint := ""
	if len(key) > longest {
		key = key[:longest] + "…"
	} else if best := suggest(); best != "" {
		hint = "; did you mean " + best + "?"
	}
	l.problem(key, origin, "unknown %s%s", kind, hint)
}

func (l *loader) readFlags(flags map[string]string) map[string]given {
	layer := make(map[string]given)
	for _, flag := range slices.Sorted(maps.Keys(flags)) {
		key, origin := flag, "flag --"+flag
		if !l.names.known(flag) {
			found := l.names.resolve(variable(flag))
			if len(found) != 1 {
				l.unknown("--"+flag, "flags", "flag", func() string { return l.names.closestFlag(flag) })
				continue
			}
			key = found[0]
		}
		l.names.learn(key)
		layer[key] = given{flags[flag], origin}
	}
	return layer
}

func readBounded(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, MaxFile+1))
	if err != nil {
		return nil, err
	}
	if len(data) > MaxFile {
		return nil, fmt.Errorf("%w: %s is larger than %d bytes", holdfast.ErrInvalid, path, MaxFile)
	}
	return data, nil
}

func (l *loader) config() Config {
	c := Default()
	c.origins = make(map[string]string)
	l.apply(&c, c.settings())
	for key := range l.merged {
		l.names.learn(key)
	}
	slices.Sort(l.names.types)
	for _, name := range l.names.types {
		if err := taskType(name); err != nil {
			l.problem(typesPrefix+name, l.originUnder(typesPrefix+name+"."), "%q %s", name, err)
			continue
		}
		t := c.Defaults
		t.Policy.Delays = slices.Clone(t.Policy.Delays)
		l.apply(&c, taskSettings(typesPrefix+name+".", &t))
		if c.Types == nil {
			c.Types = make(map[string]holdfast.TypeSettings)
		}
		c.Types[name] = t
	}
	slices.Sort(l.names.secrets)
	for _, name := range l.names.secrets {
		if c.Webhook.Secrets == nil {
			c.Webhook.Secrets = make(map[string][]string)
		}
		l.apply(&c, []setting{secretSetting(name, &secretKeys{c.Webhook.Secrets, name})})
		var hosts []string
		if l.apply(&c, []setting{hostsSetting(name, &hosts)}); hosts != nil {
			if c.Webhook.SecretHosts == nil {
				c.Webhook.SecretHosts = make(map[string][]string)
			}
			c.Webhook.SecretHosts[name] = hosts
		}
	}
	return c
}

// originUnder returns the origin of the first key that begins with prefix.
func (l *loader) originUnder(prefix string) string {
	for _, key := range slices.Sorted(maps.Keys(l.merged)) {
		if strings.HasPrefix(key, prefix) {
			return l.merged[key].origin
		}
	}
	return "file"
}

// apply sets the fields whose keys have a value in a layer.
func (l *loader) apply(c *Config, settings []setting) {
	for _, s := range settings {
		given, ok := l.merged[s.key]
		if !ok {
			continue
		}
		if err := s.value.set(given.value); err != nil {
			l.problem(s.key, given.origin, "%s", s.describe(err))
			continue
		}
		c.origins[s.key] = given.origin
	}
}
