package main

import (
	"cmp"
	"encoding"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/holdfastq/holdfast"
)

// none is the value of a flag that removes the stored value; see surface.Optional.
const none = "none"

// describedFlag is a flag with a placeholder for its value and a description.
type describedFlag struct {
	cli.Flag
	placeholder, doc string
	words            []string // the allowed values; nil means any text
}

// member is a member of a request that has a flag or is an argument. Package surface describes its tags.
type member struct{ reflect.StructField }

// members returns the members of a request that have a flag or are an argument.
func members(request reflect.Type) []member {
	var found []member
	for _, field := range reflect.VisibleFields(request) {
		if field.Tag.Get("flag") != "" || field.Tag.Get("arg") != "" {
			found = append(found, member{field})
		}
	}
	return found
}

// name returns the name of the flag.
func (m member) name() string {
	tag, _, _ := strings.Cut(cmp.Or(m.Tag.Get("json"), m.Tag.Get("query")), ",")
	return strings.ReplaceAll(tag, "_", "-")
}

// doc returns the description of the flag.
func (m member) doc() string {
	doc := strings.TrimSuffix(m.Tag.Get("doc"), ".")
	doc = strings.ToLower(doc[:1]) + strings.ReplaceAll(doc[1:], "null ", none+" ")
	if enum := m.Tag.Get("enum"); enum != "" {
		doc += ": " + strings.ReplaceAll(enum, ",", ", ")
	}
	if value := m.Tag.Get("default"); value != "" {
		doc += "; default " + value
	}
	return doc
}

// words returns the allowed values of the flag, or nil if it takes any text.
func (m member) words() []string {
	if enum := m.Tag.Get("enum"); enum != "" {
		return strings.Split(enum, ",")
	}
	return nil
}

// requestFlags returns the flags of a request, in the order of its members.
func requestFlags[R any]() []cli.Flag {
	var flags []cli.Flag
	for _, m := range members(reflect.TypeFor[R]()) {
		switch placeholder := m.Tag.Get("flag"); {
		case placeholder == "": // an argument
		case placeholder == "-":
			flags = append(flags, &cli.BoolFlag{Name: m.name(), Usage: m.doc()})
		case m.Type == reflect.TypeFor[[]string](), m.Type.Kind() == reflect.Map:
			flags = append(flags, describedFlag{&cli.StringSliceFlag{Name: m.name()}, placeholder, m.doc(), nil})
		default:
			flags = append(flags, describedFlag{&cli.StringFlag{Name: m.name()}, placeholder, m.doc(), m.words()})
		}
	}
	return flags
}

// readRequest sets the members of a request from the flags and the arguments of a command, and checks it. It refuses an
// empty value of a flag, which usually comes from an unset variable of a script.
func readRequest(c *cli.Context, into any) error {
	value := reflect.ValueOf(into).Elem()
	for _, m := range members(value.Type()) {
		if err := m.read(c, value.FieldByIndex(m.Index)); err != nil {
			return err
		}
	}
	if checked, ok := into.(interface{ Check() error }); ok {
		return checked.Check()
	}
	return nil
}

// read sets a member from its flag or its argument.
func (m member) read(c *cli.Context, into reflect.Value) error {
	name, text := m.name(), ""
	if index := m.Tag.Get("arg"); index != "" {
		if err := m.readArguments(c, index, into); err != nil {
			return usageOf(commandName(c), "%w", err)
		}
		return nil
	}
	switch target := into.Addr().Interface().(type) {
	case *bool:
		*target = c.Bool(name)
		return nil
	case **bool:
		if c.IsSet(name) {
			*target = new(c.Bool(name))
		}
		return nil
	case *[]string:
		*target = c.StringSlice(name)
		return nil
	case *map[string]string:
		*target = make(map[string]string)
		for _, pair := range c.StringSlice(name) {
			key, value, ok := strings.Cut(pair, "=")
			if !ok {
				return usageOf(commandName(c), "--%s %s: use the form key=value", name, pair)
			}
			(*target)[key] = value
		}
		return nil
	}
	switch {
	case c.IsSet(name):
		if text = c.String(name); strings.TrimSpace(text) == "" {
			return usageOf(commandName(c), "--%s is empty", name)
		}
	case m.Tag.Get("required") == "true":
		return usageOf(commandName(c), "give --%s: %s", name, m.doc())
	default:
		if text = m.Tag.Get("default"); text == "" {
			return nil
		}
	}
	if err := m.set(into, text); err != nil {
		return usageOf(commandName(c), "--%s %w", name, err)
	}
	return nil
}

// readArguments sets a member from the argument with an index, or from all arguments if the index is "...".
func (m member) readArguments(c *cli.Context, index string, into reflect.Value) error {
	if n, err := strconv.Atoi(index); err == nil {
		return m.set(into, c.Args().Get(n))
	}
	into.Set(reflect.MakeSlice(into.Type(), c.NArg(), c.NArg()))
	for i, text := range c.Args().Slice() {
		if err := m.set(into.Index(i), text); err != nil {
			return err
		}
	}
	return nil
}

// set parses a text and sets a member to its value.
func (m member) set(into reflect.Value, text string) error {
	if into.Kind() == reflect.Struct { // a surface.Optional
		into.FieldByName("Given").SetBool(true)
		if text == none {
			return nil
		}
		if err := m.set(into.FieldByName("Value"), text); err != nil {
			return fmt.Errorf("%w, or none", err)
		}
		return nil
	}
	if into.Kind() == reflect.Pointer {
		into.Set(reflect.New(into.Type().Elem()))
		into = into.Elem()
	}
	if words := m.words(); words != nil && !slices.Contains(words, text) {
		return fmt.Errorf("%q is not one of %s", text, strings.Join(words, ", "))
	}
	switch target := into.Addr().Interface().(type) {
	case encoding.TextUnmarshaler:
		return target.UnmarshalText([]byte(text))
	case *time.Duration:
		d, err := time.ParseDuration(text)
		switch {
		case err != nil:
			return fmt.Errorf("%q is not a duration like 90s or 2h", text)
		case d <= 0:
			return fmt.Errorf("%s must be more than 0", text)
		case d > holdfast.MaxDuration:
			return fmt.Errorf("%s is longer than ten years (%s)", text, holdfast.MaxDuration)
		}
		*target = d
		return nil
	}
	switch into.Kind() {
	case reflect.String:
		into.SetString(text)
	case reflect.Int, reflect.Int64:
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return fmt.Errorf("%q must be a whole number", text)
		}
		if least, err := strconv.ParseInt(m.Tag.Get("minimum"), 10, 64); err == nil && n < least {
			return fmt.Errorf("%d must be at least %d", n, least)
		}
		if most, err := strconv.ParseInt(m.Tag.Get("most"), 10, 64); err == nil && n > most {
			return fmt.Errorf("%d must be at most %d", n, most)
		}
		into.SetInt(n)
	default:
		panic("no flag can set a member of the type " + into.Type().String())
	}
	return nil
}
