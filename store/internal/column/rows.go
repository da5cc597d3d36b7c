package column

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"time"

	"github.com/jmoiron/sqlx/reflectx"
)

// Rows reads all rows into dest, a pointer to a slice of structs. Without rows the slice is empty, not nil. A field has
// the column of its tag db, or else the column with its name, as created_at for CreatedAt. The fields of embedded
// structs have columns, too. An outer field hides an inner one. Rows converts the values of columns for these types:
//
//   - time.Time from a time, or from microseconds since 1970; null and 0 become the zero time
//   - time.Duration from microseconds
//   - json.RawMessage from a text; null and "" become nil
//   - other slices, maps and structs, unless they implement sql.Scanner, from JSON; null and "" become the zero value
func Rows(rows *sql.Rows, dest any) error {
	list := reflect.ValueOf(dest).Elem()
	if list.IsNil() {
		list.Set(reflect.MakeSlice(list.Type(), 0, 0))
	}
	return each(rows, list.Type().Elem(), func(fill func(reflect.Value) error) error {
		list.Grow(1)
		list.SetLen(list.Len() + 1)
		return fill(list.Index(list.Len() - 1))
	})
}

// Each calls f with each row in turn; see Rows.
func Each[Row any](rows *sql.Rows, f func(*Row) error) error {
	return each(rows, reflect.TypeFor[Row](), func(fill func(reflect.Value) error) error {
		row := new(Row)
		if err := fill(reflect.ValueOf(row).Elem()); err != nil {
			return err
		}
		return f(row)
	})
}

// each calls f for each row. f must call fill with a struct of the type row, into which fill reads the row.
func each(rows *sql.Rows, row reflect.Type, f func(fill func(reflect.Value) error) error) error {
	names, err := rows.Columns()
	if err != nil {
		return err
	}
	fields := mapper.TraversalsByName(row, names)
	conversions := make([]func(field any) any, len(names))
	for i, field := range fields {
		if len(field) == 0 {
			return fmt.Errorf("%s has no field for the column %s", row, names[i])
		}
		conversions[i] = conversionOf(row.FieldByIndex(field).Type)
	}
	into := make([]any, len(fields))
	fill := func(row reflect.Value) error {
		for i, field := range fields {
			into[i] = row.FieldByIndex(field).Addr().Interface()
			if convert := conversions[i]; convert != nil {
				into[i] = convert(into[i])
			}
		}
		return rows.Scan(into...)
	}
	for rows.Next() {
		if err := f(fill); err != nil {
			return err
		}
	}
	return rows.Err()
}

var (
	wordEnd = regexp.MustCompile(`([a-z])([A-Z])`)
	mapper  = reflectx.NewMapperFunc("db", func(field string) string {
		return strings.ToLower(wordEnd.ReplaceAllString(field, "${1}_${2}"))
	})
)

// conversionOf returns the function that converts a pointer to a field of the given type into the argument of
// sql.Rows.Scan. It returns nil if the pointer itself is the argument.
func conversionOf(field reflect.Type) func(field any) any {
	switch field {
	case reflect.TypeFor[time.Time]():
		return func(field any) any { return (*Time)(field.(*time.Time)) }
	case reflect.TypeFor[time.Duration]():
		return func(field any) any { return (*micros)(field.(*time.Duration)) }
	case reflect.TypeFor[json.RawMessage]():
		return func(field any) any { return (*document)(field.(*json.RawMessage)) }
	case reflect.TypeFor[[]byte](), reflect.TypeFor[sql.RawBytes]():
		return nil
	}
	switch field.Kind() {
	case reflect.Slice, reflect.Map, reflect.Struct:
		if !reflect.PointerTo(field).Implements(reflect.TypeFor[sql.Scanner]()) {
			return func(field any) any { return JSON{field} }
		}
	}
	return nil
}

// Time scans a time.
type Time time.Time

// Scan implements sql.Scanner.
func (t *Time) Scan(value any) error {
	switch value := value.(type) {
	case nil:
		*t = Time{}
	case time.Time:
		*t = Time(value.UTC())
	case int64:
		*t = Time{}
		if value != 0 {
			*t = Time(time.UnixMicro(value).UTC())
		}
	default:
		return fmt.Errorf("%T is not a time", value)
	}
	return nil
}

// micros scans a duration.
type micros time.Duration

func (d *micros) Scan(value any) error {
	var n sql.NullInt64
	err := n.Scan(value)
	*d = micros(time.Duration(n.Int64) * time.Microsecond)
	return err
}

// document scans the text of a JSON document.
type document json.RawMessage

func (d *document) Scan(value any) error {
	var text sql.NullString
	err := text.Scan(value)
	if *d = nil; text.String != "" {
		*d = document(text.String)
	}
	return err
}

// JSON scans a JSON document into the variable to which Into points.
type JSON struct{ Into any }

// Scan implements sql.Scanner.
func (j JSON) Scan(value any) error {
	reflect.ValueOf(j.Into).Elem().SetZero()
	if value == nil { // as for the tags of most tasks
		return nil
	}
	var text document
	if err := text.Scan(value); err != nil || text == nil {
		return err
	}
	return json.Unmarshal(text, j.Into)
}
