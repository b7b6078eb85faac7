package main

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

const (
	headerBytes   = 64
	batchBytesMax = 1 << 30
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Batch is what this program needs of the header of a record batch, and the Arrow message behind it. docs/protocol.md
// describes all of its bytes.
type Batch struct {
	BaseOffset      int64
	LeaderEpoch     int32
	LastOffsetDelta int32
	RecordCount     int32
	Body            []byte // with the zeros that fill it up
}

// NextOffset is where the next batch starts, or below it.
func (b *Batch) NextOffset() int64 { return b.BaseOffset + int64(b.LastOffsetDelta) + 1 }

// ParseBatch takes the first batch of data, checks both checksums, and returns what follows it.
func ParseBatch(data []byte) (*Batch, []byte, error) {
	if len(data) < headerBytes {
		return nil, nil, fmt.Errorf("batch: %d bytes, a header has %d", len(data), headerBytes)
	}
	// First this one: it says whether batch_bytes, where the next batch starts, can be trusted.
	stamp := binary.LittleEndian.Uint16(data[18:])
	if found := uint16(crc32.Checksum(data[:18], castagnoli)); found != stamp {
		return nil, nil, fmt.Errorf("batch: stamp_checksum is %#04x, the bytes have %#04x", stamp, found)
	}
	length := int(binary.LittleEndian.Uint32(data[12:]))
	if length < headerBytes || length > batchBytesMax || length%headerBytes != 0 || length > len(data) {
		return nil, nil, fmt.Errorf("batch: batch_bytes is %d, there are %d", length, len(data))
	}
	if magic := data[16]; magic != 1 {
		return nil, nil, fmt.Errorf("batch: magic is %d, this program knows 1", magic)
	}
	checksum := binary.LittleEndian.Uint32(data[20:])
	if found := crc32.Checksum(data[24:length], castagnoli); found != checksum {
		return nil, nil, fmt.Errorf("batch: crc32c is %#08x, the bytes have %#08x", checksum, found)
	}
	return &Batch{
		BaseOffset:      int64(binary.LittleEndian.Uint64(data[0:])),
		LeaderEpoch:     int32(binary.LittleEndian.Uint32(data[8:])),
		LastOffsetDelta: int32(binary.LittleEndian.Uint32(data[28:])),
		RecordCount:     int32(binary.LittleEndian.Uint32(data[32:])),
		Body:            data[headerBytes:length],
	}, data[length:], nil
}
