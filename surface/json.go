package surface

import (
	"bytes"
	"encoding/json"
	"io"
	"strconv"
	"unicode"
	"unicode/utf16"
)

// Each calls form for each item and returns the results. The list is never nil, so JSON has it as an array.
func Each[T, F any](items []T, form func(T) F) []F {
	forms := make([]F, len(items))
	for i, item := range items {
		forms[i] = form(item)
	}
	return forms
}

// pageOf returns the items of a page, which are the first ones up to limit. It also returns the cursor of the next page,
// which is nil on the last page. The caller has read up to limit+1 items.
func pageOf[T, C any](items []T, limit int, cursor func(T) C) ([]T, *C) {
	if len(items) <= limit {
		return append([]T{}, items...), nil
	}
	return items[:limit], new(cursor(items[limit-1]))
}

// Listed is a record in a list.
type Listed[F, T any] struct {
	Form F // the JSON form
	From T // the record
}

// listed returns a page of records with their JSON forms, and the cursor of the next page; see pageOf.
func listed[T, F, C any](found []T, limit int, form func(T) F, cursor func(T) C) ([]Listed[F, T], *C) {
	page, next := pageOf(found, limit, cursor)
	return Each(page, func(from T) Listed[F, T] { return Listed[F, T]{form(from), from} }), next
}

// FormOf returns the JSON form of a record in a list.
func FormOf[F, T any](l Listed[F, T]) F { return l.Form }

// WriteJSON writes a value as JSON on one line. It does not escape the characters that are special in HTML.
func WriteJSON(w io.Writer, value any) error {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return err
	}
	_, err := w.Write(withoutLoneSurrogates(text.Bytes()))
	return err
}

// withoutLoneSurrogates replaces each escape of a lone surrogate in JSON by the escape of the replacement character.
// JSON allows lone surrogates, but most programs refuse them.
func withoutLoneSurrogates(text []byte) []byte {
	unit := func(i int) rune { // the UTF-16 code unit of the escape at i, or 0
		if i+6 > len(text) || text[i] != '\\' || text[i+1] != 'u' {
			return 0
		}
		n, err := strconv.ParseUint(string(text[i+2:i+6]), 16, 16)
		if err != nil {
			return 0
		}
		return rune(n)
	}
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' {
			continue
		}
		first := unit(i)
		switch {
		case !utf16.IsSurrogate(first):
			i++ // skip the escaped character, which may be a backslash
		case utf16.DecodeRune(first, unit(i+6)) == unicode.ReplacementChar:
			copy(text[i:], `\ufffd`)
			i += 5
		default:
			i += 11
		}
	}
	return text
}
