// Package statement loads the SQL statements of an adapter from .sql files.
//
// A statement that both engines execute has one text, in the SQL of PostgreSQL. Where the engines differ, the text has
// a macro:
//
//	macro                      PostgreSQL                                   SQLite
//	{{now}}                    now()                                        ?n, the time
//	{{clock}}                  clock_timestamp()                            ?n, the time
//	{{epoch}}                  timestamptz 'epoch'                          0
//	{{at(x)}}                  the time x microseconds after {{epoch}}      x
//	{{span(x)}}                the interval of x microseconds               x
//	{{micros(t)}}              the microseconds from {{epoch}} to t         t
//	{{age(t)}}                 the seconds from t to {{now}}                (?n - t) / 1000000.0
//	{{queue(q)}}               the queue of the subqueue q, split_part      the same with substr
//	{{in(x)}}                  = any (x)                                    in (select value from json_each(x))
//	{{none(x)}}                cardinality(x) = 0                           x = '[]'
//	{{size(x)}}                the stored bytes of the column x            octet_length(x)
//	{{list(a.c, x)}}           unnest(x) as a (c)                           the same with json_each(x)
//	{{rows(a, x, c t, d u)}}   json_to_recordset(x) as a (c t, d u)         the same with json_each(x)
//	{{lock}}, {{lock(of t)}}   for update, for update of t                  nothing: a transaction locks the database
//
// For SQLite the loader also removes each cast of the form ::type and the schema "holdfast.", and writes ?1 for $1. A
// cast that changes a value is written as cast(x as type). The time is the parameter after the highest one of the
// statement. SQLite has the functions greatest and least of PostgreSQL, because the adapter registers them.
package statement

import (
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
)

// parts is the name of the file with parts that statements share. A line "-- {{name}}" begins the part with that name.
// {{name}} in a statement or in another part includes it.
const parts = "parts"

// heading is the form of the lines that begin the sections of a file.
type heading struct {
	before, after string // of the name
	more          bool   // text may follow
}

var (
	ofStatement = heading{"-- name: ", "", false} // in a file with several statements
	ofPart      = heading{"-- {{", "}}", true}
)

// name returns the name in a line, and whether the line is such a heading.
func (h heading) name(line string) (string, bool) {
	rest, found := strings.CutPrefix(strings.TrimSuffix(line, "\n"), h.before)
	if !found {
		return "", false
	}
	name := word(rest)
	rest, closed := strings.CutPrefix(rest[len(name):], h.after)
	return name, name != "" && closed && (h.more || rest == "")
}

// word returns the letters, digits and underscores at the beginning of a text.
func word(text string) string {
	return text[:len(text)-len(strings.TrimLeftFunc(text, isOfWord))]
}

func isOfWord(c rune) bool {
	return c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

// Variant is a copy of a statement in which another part replaces a part that the statement includes.
type Variant struct {
	Name string
	Of   string // the copied statement
	Part string // a part that it includes
	Is   string // the part that the copy includes instead
	// More has further replaced parts, with the parts that replace them.
	More map[string]string
}

// Load returns the statements of all .sql files in files, and the variants, in one dialect. A file has the statements
// of one role. The line "-- name: x" begins the statement x. A file without such a line is one statement with the name
// of the file. The returned texts have no comments and no indentation. given has additional parts. If a file is not
// usable, Load panics, because that is an error of the build.
//
// Every process and every command calls Load at its start. So it uses no regular expressions, and renders each part
// once.
func Load(d Dialect, given map[string]string, variants []Variant, files ...fs.FS) map[string]string {
	texts, r := make(map[string]string), renderer{dialect: d, parts: make(map[string]string), rendered: make(map[string]string)}
	maps.Copy(r.parts, given)
	for _, tree := range files {
		err := fs.WalkDir(tree, ".", func(file string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || path.Ext(file) != ".sql" {
				return err
			}
			text, err := fs.ReadFile(tree, file)
			switch name := strings.TrimSuffix(path.Base(file), ".sql"); {
			case name == parts:
				split(r.parts, ofPart, string(text))
			case !split(texts, ofStatement, string(text)):
				add(texts, name, string(text))
			}
			return err
		})
		if err != nil {
			panic(err)
		}
	}
	for name, part := range r.parts {
		if _, twice := macros[name]; twice {
			panic("the .sql files have a part with the name of the macro " + name)
		}
		r.parts[name] = Compact(part)
	}
	for _, v := range variants {
		text := strings.ReplaceAll(Text(texts, v.Of), "{{"+v.Part+"}}", "{{"+v.Is+"}}")
		for part, is := range v.More {
			text = strings.ReplaceAll(text, "{{"+part+"}}", "{{"+is+"}}")
		}
		texts[v.Name] = text
	}
	for name, text := range texts {
		texts[name] = d.finish(Compact(r.render(Compact(text))))
	}
	return texts
}

// add adds a text. It panics if the name is already in use.
func add(texts map[string]string, name, text string) {
	if _, twice := texts[name]; twice {
		panic("the .sql files have " + name + " twice")
	}
	texts[name] = text
}

// split adds the sections of a text, and reports whether it has any. A heading begins each section.
func split(texts map[string]string, h heading, text string) bool {
	name, begin, end := "", 0, 0
	for line := range strings.Lines(text) {
		if next, found := h.name(line); found {
			if name != "" {
				add(texts, name, text[begin:end])
			}
			name, begin = next, end+len(line)
		}
		end += len(line)
	}
	if name != "" {
		add(texts, name, text[begin:])
	}
	return name != ""
}

// renderer replaces parts and macros.
type renderer struct {
	dialect  Dialect
	parts    map[string]string
	rendered map[string]string // parts by name
	inside   []string          // the parts that contain the text, because a part must not include itself
}

// render replaces each {{name}} and {{name(arguments)}} in a text, in included parts and in arguments.
func (r renderer) render(text string) string {
	var rendered strings.Builder
	for {
		before, rest, found := strings.Cut(text, "{{")
		rendered.WriteString(before)
		if !found {
			if strings.Contains(rendered.String(), "}}") {
				panic("the .sql files have }} without {{: " + text)
			}
			return rendered.String()
		}
		use := "{{" + rest
		name := word(rest)
		args, length := arguments(use[2+len(name):])
		if !strings.HasPrefix(use[2+len(name)+length:], "}}") {
			panic("the .sql files have {{" + name + " without }}: " + use)
		}
		rendered.WriteString(r.replace(name, args))
		text = use[2+len(name)+length+2:]
	}
}

// replace returns the text for a use of a part or macro.
func (r renderer) replace(name string, args []string) string {
	m, ok := macros[name]
	switch {
	case !ok && args != nil:
		panic("the .sql files have no macro " + name)
	case slices.Contains(r.inside, name):
		panic("the .sql files have a part that includes itself: " + name)
	case !ok:
		text, done := r.rendered[name]
		if !done {
			inner := r
			inner.inside = append(slices.Clone(r.inside), name)
			text = inner.render(Text(r.parts, name))
			r.rendered[name] = text
		}
		return text
	case len(args) < m.least || len(args) > m.most:
		panic(fmt.Sprintf("the .sql files have %s with %d arguments", name, len(args)))
	}
	for i, arg := range args {
		args[i] = r.render(arg)
	}
	return m.expand(r.dialect, args)
}

// arguments returns the comma-separated arguments in parentheses at the beginning of a text, and their length. If the
// text does not begin with a parenthesis, it returns nil.
func arguments(text string) (args []string, length int) {
	if !strings.HasPrefix(text, "(") {
		return nil, 0
	}
	depth, start := 0, 1
	for i, c := range text {
		switch {
		case c == '(':
			depth++
		case c == ')':
			depth--
		}
		if depth == 0 || depth == 1 && c == ',' {
			args, start = append(args, strings.TrimSpace(text[start:i])), i+1
		}
		if depth == 0 {
			return args, i + 1
		}
	}
	panic("the .sql files have unbalanced parentheses: " + text)
}

// Text returns the text with the given name. It panics if there is no such text.
func Text(texts map[string]string, name string) string {
	text, ok := texts[name]
	if !ok {
		panic(fmt.Sprintf("the .sql files have no %s", name))
	}
	return text
}

// Compact removes comments and indentation, because the client may send the text with every call.
func Compact(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "--")
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n")
}
