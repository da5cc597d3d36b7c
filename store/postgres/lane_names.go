package postgres

import "context"

// LaneNames implements store.Dispatch.
func (s *Store) LaneNames(ctx context.Context) ([]string, error) {
	var rows []struct{ Name string }
	err := s.do(ctx, "list lanes", func() error {
		rows = nil
		return s.all(ctx, s.db, &rows, "lane_names")
	})
	names := make([]string, len(rows))
	for i, row := range rows {
		names[i] = row.Name
	}
	return names, err
}
