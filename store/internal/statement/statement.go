// Package statement loads the SQL statements of an adapter from its .sql files.
package statement

import (
	"fmt"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"strings"
)

// named begins the statement with that name in a file of several statements.
var named = regexp.MustCompile(`(?m)^-- name: (\w+)$`)

// parts is the file with the shared parts of statements. A line "-- {{name}}" begins the part with that name. {{name}}
// in a statement or in another part includes it.
const parts = "parts"

var (
	heading  = regexp.MustCompile(`(?m)^-- \{\{(\w+)\}\}.*$`)
	included = regexp.MustCompile(`\{\{(\w+)\}\}`)
)

// Variant is a copy of a statement that includes another part.
type Variant struct {
	Name string
	Of   string // the copied statement
	Part string // the part that it includes
	Is   string // the part that the copy includes instead
}

// Load returns the statements in the folder sql and the variants. A file has the statements of one role. The line
// "-- name: x" begins the statement x; a file without such a line is one statement with the name of the file. The texts
// have no comments and no indentation. given has additional parts. Load panics if a file is not usable, because that is
// an error of the build.
func Load(files fs.FS, given map[string]string, variants ...Variant) map[string]string {
	entries, err := fs.ReadDir(files, "sql")
	if err != nil {
		panic(err)
	}
	texts := make(map[string]string, len(entries))
	for _, entry := range entries {
		text, err := fs.ReadFile(files, path.Join("sql", entry.Name()))
		if err != nil {
			panic(err)
		}
		if !named.Match(text) {
			texts[strings.TrimSuffix(entry.Name(), ".sql")] = string(text)
			continue
		}
		for name, statement := range split(named, string(text)) {
			if _, twice := texts[name]; twice {
				panic("sql/ has two statements " + name)
			}
			texts[name] = statement
		}
	}
	byName := split(heading, texts[parts])
	for name, text := range byName {
		byName[name] = Compact(text)
	}
	maps.Copy(byName, given)
	delete(texts, parts)
	for _, v := range variants {
		texts[v.Name] = strings.ReplaceAll(Text(texts, v.Of), "{{"+v.Part+"}}", "{{"+v.Is+"}}")
	}
	for name, text := range texts {
		texts[name] = fill(byName, Compact(text))
	}
	return texts
}

// split returns the pieces of a text by name. A heading begins each piece; its first group is the name.
func split(heading *regexp.Regexp, text string) map[string]string {
	pieces := make(map[string]string)
	at := heading.FindAllStringSubmatchIndex(text, -1)
	for i, match := range at {
		if name := text[match[2]:match[3]]; pieces[name] != "" {
			panic("sql/ has " + name + " twice in one file")
		}
		end := len(text)
		if i+1 < len(at) {
			end = at[i+1][0]
		}
		pieces[text[match[2]:match[3]]] = text[match[1]:end]
	}
	return pieces
}

// fill replaces each {{name}} with its part, recursively.
func fill(byName map[string]string, text string) string {
	return included.ReplaceAllStringFunc(text, func(match string) string {
		rest := maps.Clone(byName)
		delete(rest, strings.Trim(match, "{}")) // a part must not include itself
		return fill(rest, Text(byName, strings.Trim(match, "{}")))
	})
}

// Text returns the text with the given name. It panics if there is none.
func Text(texts map[string]string, name string) string {
	text, ok := texts[name]
	if !ok {
		panic(fmt.Sprintf("sql/ has no %s", name))
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
