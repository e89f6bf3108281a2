from tests.disks import small_disk

__all__ = ["small_disk"]
